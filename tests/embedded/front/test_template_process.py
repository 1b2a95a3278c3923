"""The process that renders chat templates, where less is allowed than it would allow itself."""

import subprocess
import sys

import msgspec

from firstlight.embedded.channel import HEADER
from firstlight.embedded.front import template_process
from firstlight.embedded.front.template_process import Rendered, Template

DEADLINE_S = 60.0
LESS = template_process.MEMORY * 3 // 4


def test_where_less_memory_is_allowed_already_that_stays() -> None:
    body = msgspec.json.encode(Template(source="{{ messages[0] }}", variables={}))
    asked = HEADER.pack(len(body)) + body + HEADER.pack(len(b'["hello"]')) + b'["hello"]'
    limited = f'ulimit -v {LESS >> 10}; exec "$@"'
    program = ["sh", "-c", limited, "sh", sys.executable, "-m", template_process.__name__]
    done = subprocess.run(program, input=asked, capture_output=True, timeout=DEADLINE_S, check=True)
    compiled, rendered = answers(done.stdout)
    assert (compiled, rendered) == (Rendered(), Rendered(text="hello"))


def answers(said: bytes) -> list[Rendered]:
    found = []
    while said:
        end = HEADER.size + HEADER.unpack(said[: HEADER.size])[0]
        found.append(msgspec.json.decode(said[HEADER.size : end], type=Rendered))
        said = said[end:]
    return found
