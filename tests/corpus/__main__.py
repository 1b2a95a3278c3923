"""`python -m tests.corpus` writes the pages of docs/causes/ anew."""

from tests.corpus.pages import pages

for path, text in pages().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
