"""Say it: one report as data, rendered for the terminal, as Markdown and as HTML."""
