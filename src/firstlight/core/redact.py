"""Keep secrets out of everything that is written: commands, log text, environments.

Names decide first: what an option, a variable or a key called `token`, `password`, `api_key` … holds is replaced,
whatever it looks like. Shapes decide second: bearer headers, well-known token prefixes, URLs with credentials.
Environments are denied by default. A word too many is replaced rather than one too few.
"""

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"""(?ix) (?<![a-z0-9]) (?:
        api_?key | auth | authorization | credentials? | keys? | passphrase | passwd | passwords? | pat | pwd
      | secrets? | signature | token
    ) (?![a-z0-9])"""
)
_HARMLESS_NAME = re.compile(
    r"""(?ix)
        (?: CUDA | CUDNN | FLASHINFER | FI | GLOO | GOMP | HF | HIP | HSA | KMP | MASTER | MKL | NCCL | NUMEXPR
          | NVIDIA | NVSHMEM | OMP | OMPI | OPENBLAS | PYTORCH | RAY | ROCR | SAFETENSORS | SGL | SGLANG | SLURM
          | TOKENIZERS | TORCH | TORCHELASTIC | TORCHINDUCTOR | TRANSFORMERS | TRITON | UCX | VLLM | XDG_CACHE ) _ \w+
      | (?: ALL | FTP | HTTP | HTTPS | NO ) _PROXY
      | CC | CXX | LANG | LD_LIBRARY_PATH | LD_PRELOAD | MALLOC_ARENA_MAX | MAX_JOBS | PATH | TMPDIR
      | PYTHONFAULTHANDLER | PYTHONPATH | PYTHONUNBUFFERED
      | RANK | LOCAL_RANK | NODE_RANK | WORLD_SIZE | LOCAL_WORLD_SIZE
    """
)
_NAMED = re.compile(
    r"""(?ix)
    (?P<name>
        (?: passw(?:or)?d | passphrase | secret | credential | signature
          | (?: api | access | private | secret | signing | encryption | account | ssh ) [_-]? key
          | (?: hf | hub | auth | access | api | bearer | refresh | session | github | gitlab | id ) [_-]? token
          | (?<! [a-z0-9_] ) token (?! s? ["']? \s{0,4} [=:] \s{0,4} \d+ (?: \.\d+ )? (?!\w) )
        )
        (?: s | [_-] \w{1,32} )? ["']?
    )
    (?P<between> \s{0,4} [=:] \s{0,4} )
    (?P<value>
        \[ [^\]]{0,4096} \]? | \( [^)]{0,4096} \)? | "[^"]{0,4096}"? | '[^']{0,4096}'? | [^\s"',;&)}\]]{1,4096}
    )
    """
)
_OPTION = re.compile(
    r"""(?x) (?P<name> --[A-Za-z][\w-]{0,64} ) (?P<between> = | \s{1,4} )
    (?P<value> "[^"]{0,4096}"? | '[^']{0,4096}'? | [^\s"'-]\S{0,4096} )"""
)
_AUTHORISATION = re.compile(r"(?i)\b(bearer|basic)\s{1,4}[A-Za-z0-9._~+/=-]{6,}")
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"']{1,512}@")
_TOKEN_SHAPES = re.compile(
    r"""(?x) (?<![A-Za-z0-9]) (?:
        (?: hf_ | api_org_ ) [A-Za-z0-9]{16,}
      | sk- [A-Za-z0-9_-]{16,}
      | (?: nvapi- | glpat- | xox[abprs]- ) [A-Za-z0-9_-]{10,}
      | (?: gh[opsur]_ | github_pat_ ) [A-Za-z0-9_]{16,}
      | (?: AKIA | ASIA ) [0-9A-Z]{16}
      | AIza [A-Za-z0-9_-]{30,}
      | eyJ [A-Za-z0-9_-]{8,} \. [A-Za-z0-9_-]{8,} (?: \. [A-Za-z0-9_-]* )?
    )"""
)
_NOTHING = frozenset({"", "none", "null", "true", "false", "[]", "()", "''", '""', HIDDEN})
_ASSIGNMENT = re.compile(r"(?s)([A-Za-z_]\w*)=(.*)")


def secret_name(name: str) -> bool:
    """True if something of this name (an option, a variable) is to be kept secret."""
    return _SECRET_NAME.search(name) is not None


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line with every secret replaced.

    An option may take several values (`--api-key one two`), so all words up to the next option are hidden.
    """
    shown: list[str] = []
    hiding = False
    for word in argv:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            hiding = not equals and secret_name(name)
            shown.append(f"{name}{equals}{HIDDEN if secret_name(name) else text(value)}" if equals else word)
        elif hiding:
            shown.append(HIDDEN)
        else:
            shown.append(_word(word))
    return tuple(shown)


def _word(word: str) -> str:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and secret_name(assignment[1]):
        return f"{assignment[1]}={HIDDEN}"
    return text(word)


def text(s: str) -> str:
    """Any text with what looks like a secret replaced: `key=value`, bearer headers, known tokens, URL credentials."""
    s = _URL_CREDENTIALS.sub(f"{HIDDEN}@", s)
    s = _AUTHORISATION.sub(rf"\1 {HIDDEN}", s)
    s = _TOKEN_SHAPES.sub(HIDDEN, s)
    s = _NAMED.sub(_hide, s)
    return _OPTION.sub(lambda match: _hide(match) if secret_name(match["name"]) else match[0], s)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    if value.lower() in _NOTHING:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['between']}{quote}{HIDDEN}{quote}"


def environ(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for a report: values only of names known to be harmless and telling, of all others the name."""
    return {
        name: text(value) if _HARMLESS_NAME.fullmatch(name) and not secret_name(name) else HIDDEN
        for name, value in env.items()
    }
