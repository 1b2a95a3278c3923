"""Keep secrets out of everything that is written: commands, log text, environments.

Names decide first: what an option, a variable or a key called `token`, `password`, `api_key` … holds is replaced,
whatever it looks like. Values decide second: what such a name held when the server was launched is replaced wherever
it turns up again, under whatever name. Shapes decide third: bearer headers, well-known token prefixes, URLs with
credentials. Environments are denied by default. A word too many is replaced rather than one too few.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from firstlight.core.clean import clean_text
from firstlight.core.secret_names import may_be_shown, secret_name

HIDDEN = "***"
KNOWN_CHARACTERS_MIN = 8

_NAMED = re.compile(
    r"""(?ix)
    (?P<name>
        (?: passw(?:or)?d | passphrase | secret | credential | signature
          | (?: api | access | private | secret | signing | encryption | account | ssh ) [_-]? key
          | (?: hf | hub | auth | access | api | bearer | refresh | session | github | gitlab | id ) [_-]? token
          | (?<! [a-z0-9_] ) token (?! s? ["']? \s{0,4} [=:] \s{0,4} \d+ (?: \.\d+ )? (?!\w) )
        )
        (?: s | [_-] \w{1,32} )? (?: \\{0,7} ["'] )?
      | (?<! [\w."'/-] ) pass (?! \s{0,4} [=:] \s{0,4} \d{1,4} (?: \.\d+ )? (?!\w) )
      | (?<! [\w."'/-] ) pwd (?! \s{0,4} [=:] \s{0,4} / )
      | (?<= ["'] ) (?: auth | bearer | cookie | jwt | pass | pwd | sig ) \\{0,7} ["']
      | (?<= [?&] ) (?: auth | code | jwt | key | pass | pwd | session | sig )
    )
    (?P<between> \s{0,4} (?: [=:] | %3[ad] ) \s{0,4} )
    (?P<value>
        (?P<escaped> \\{1,7} ["'] ) [^"'\\]{0,4096}
      | \[ [^\]]{0,4096} \]? | \( [^)]{0,4096} \)? | "[^"]{0,4096}"? | '[^']{0,4096}'? | [^\s"',;&)}\]]{1,4096}
    )
    """
)
_VARIABLE = re.compile(
    r"""(?x) (?<![\w/.-]) (?P<name> [A-Z][A-Z0-9_]{2,64} ) (?P<between> = )
    (?P<value> "[^"]{0,4096}"? | '[^']{0,4096}'? | [^\s"';&|]{1,4096} )"""
)
"""A variable that is set in a line for a shell."""
_OPTION = re.compile(
    r"""(?x) (?P<name> --[A-Za-z][\w-]{0,64} ) (?P<between> = | \s{1,4} )
    (?P<value> "[^"]{0,4096}"? | '[^']{0,4096}'? | [^\s"'-]\S{0,4096} )"""
)
_AUTHORISATION = re.compile(r"(?i)\b(bearer|basic)\s{1,4}[A-Za-z0-9._~+/=-]{6,}")
_HEADER = re.compile(
    r"""(?ix) (?P<shown>
        \b (?: authorization | cookie ) (?: \\{0,7} ["'] )? \s{0,4} : \s{0,4} (?: \\{0,7} ["'] )?
    ) [^\s"'\\] [^"'\\\r\n]{0,4095}"""
)
"""Headers whose whole value is secret, whatever is said before it: a scheme, the name of a cookie."""
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
_PRIVATE_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PRIVATE_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PRIVATE_KEY = re.compile(rf"(?s)({_PRIVATE_KEY_BEGINS.pattern})(?:(?!-----END ).){{1,20000}}")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{1,4096}\s{0,16}$")
KEY_LINES_MAX = 200
"""A private key of 8,192 bits has some hundred lines."""
_DATABASES = "mysql|mysqldump|mysqladmin|mariadb|mariadb-dump"
_OF_PROGRAMS = re.compile(
    rf"""(?x) (?P<shown> (?<! [\w-] ) (?:
        curl \s [^|;&\n]{{0,512}}? (?<= \s ) (?: -[uU] | --(?:proxy-)?user [=\s] ) \s{{0,4}} ["']? [^\s:"']{{0,128}} :
      | (?: {_DATABASES} ) \s [^|;&\n]{{0,512}}? (?<= \s ) -p
      | sshpass \s{{1,4}} -p \s{{0,4}} ["']?
      | redis-cli \s [^|;&\n]{{0,512}}? (?<= \s ) -a \s{{1,4}} ["']?
    ) ) [^\s"']{{1,512}}"""
)
"""Short options that are a password's with these programs, and mean many other things with others."""
_USERS_OPTION = re.compile(r"(?P<shown>(?:(?:-[uU]|--(?:proxy-)?user=?)?[^:]*:)).+")
_PROGRAMS = {
    "curl": ("-u", "-U", "--user", "--proxy-user"),
    "sshpass": ("-p",),
    "redis-cli": ("-a",),
    **dict.fromkeys(_DATABASES.split("|"), ()),
}
_NOTHING = frozenset({"", "none", "null", "true", "false", "[]", "()", "''", '""', HIDDEN})
_PROSE = frozenset({"and", "argument", "for", "if", "is", "must", "option", "or", "to", "was", "with"})
_COMMANDS = frozenset({"command", "cmdline"})
_PLACE_NAME = re.compile(r"(?i)_(?:dir|file|path|sock|socket)$")
_ENTRY_ENDS = re.compile(r"[\n,]")
_ASSIGNMENT = re.compile(r"(?s)([A-Za-z_]\w*)=(.*)")


class Known:
    """Values that are secret wherever they stand. Short ones are not: they would be found inside ordinary words."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._anywhere: re.Pattern[str] | None = None

    def remember(self, values: Iterable[str]) -> None:
        """Keep these secret from now on; of a list or of several lines, each entry as well."""
        entries = {entry.strip() for value in values for entry in (value, *_ENTRY_ENDS.split(value))}
        self._values |= {clean_text(entry) for entry in entries if len(entry) >= KNOWN_CHARACTERS_MIN}
        longest_first = sorted(self._values, key=len, reverse=True)
        self._anywhere = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def hide(self, s: str) -> str:
        """The text with every known value in it replaced."""
        return self._anywhere.sub(HIDDEN, s) if self._anywhere else s


_KNOWN = Known()


def remember(values: Iterable[str]) -> None:
    """Replace these values in everything that is redacted from now on, in this process, unless they are too short.

    `secrets_of` finds those of a run.
    """
    _KNOWN.remember(values)


def secrets_of(argv: Sequence[str], variables: Iterable[tuple[str, str]] = ()) -> frozenset[str]:
    """The values that a command line and variables of the environment give to secret names.

    Of the words after an option (`--api-key one two`), those after the first count only if they can be no path: the
    model may be among them, and a report that hides it everywhere is of no use.
    """
    found = {value for name, value in variables if secret_name(name) and not _PLACE_NAME.search(name)}
    first = True
    for shown, secret in _parted(argv):
        if secret and (first or shown or "/" not in secret):
            found.add(secret)
        found.update(_inside(shown + secret))
        first = not secret or bool(shown)
    return frozenset(found)


def _inside(word: str) -> Iterator[str]:
    """Secrets inside one word, as of `bash -c "TOKEN=… server --api-key …"`."""
    named = (match for pattern in (_OPTION, _VARIABLE) for match in pattern.finditer(word))
    matches = (*_NAMED.finditer(word), *(match for match in named if secret_name(match["name"])))
    return (match["value"].strip("\\\"'") for match in matches if not _open(match))


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line with every secret replaced.

    An option may take several values (`--api-key one two`), so all words up to the next option are hidden.
    """
    return tuple(f"{text(shown)}{HIDDEN if secret else ''}" for shown, secret in _parted(argv))


def _parted(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word as the part that its place allows to be shown, and the secret that follows it."""
    hiding = False
    told = dict(_passwords(argv))
    for at, word in enumerate(argv):
        if at in told:
            hiding = False
            yield word[: told[at]], word[told[at] :]
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            hiding = secret_name(name) and not equals
            if secret_name(name):
                yield f"{name}{equals}", value
            else:
                shown, secret = _assigned(value)
                yield f"{name}{equals}{shown}", secret
        elif hiding:
            yield "", word
        else:
            yield _assigned(word)


def _passwords(argv: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The words in which a program that is known for it takes a password, each with how many characters of it are
    none: `curl -u name:password`, `mysql -ppassword`, `sshpass -p password`.
    """
    program = ""
    for at, word in enumerate(argv):
        name = word.rpartition("/")[2]
        program = name if name in _PROGRAMS else program
        before = argv[at - 1] if at else ""
        options = _PROGRAMS.get(program, ())
        if program == "curl":
            user = _USERS_OPTION.fullmatch(word) if before in options or word.startswith(options) else None
            if user:
                yield at, len(user["shown"])
        elif before in options:
            yield at, 0
        elif program and word.startswith("-p") and len(word) > 2 and (program == "sshpass" or not options):
            yield at, 2


def _assigned(word: str) -> tuple[str, str]:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and secret_name(assignment[1]):
        return f"{assignment[1]}=", assignment[2]
    return word, ""


def text(s: str) -> str:
    """Any text with what is known for a secret replaced, and what looks like one: `key=value`, bearer headers, known
    tokens, URL credentials. It is fit to be written as UTF-8.
    """
    s = _KNOWN.hide(clean_text(s))
    s = _PRIVATE_KEY.sub(rf"\1{HIDDEN}", s)
    s = _URL_CREDENTIALS.sub(f"{HIDDEN}@", s)
    s = _AUTHORISATION.sub(rf"\1 {HIDDEN}", s)
    s = _HEADER.sub(rf"\g<shown>{HIDDEN}", s)
    s = _TOKEN_SHAPES.sub(HIDDEN, s)
    s = _OF_PROGRAMS.sub(rf"\g<shown>{HIDDEN}", s)
    s = _NAMED.sub(_hide, s)
    for pattern in (_OPTION, _VARIABLE):
        s = pattern.sub(lambda match: _hide(match) if secret_name(match["name"]) else match[0], s)
    return s


class PrivateKeys:
    """Hides private keys that come line by line, as a log does; one for each stream of lines."""

    def __init__(self) -> None:
        self._left = 0

    def hide(self, line: str) -> str:
        """The line without what may be of a key: its last word, where a key has begun and not ended."""
        if _PRIVATE_KEY_BEGINS.search(line):
            self._left = 0 if _PRIVATE_KEY_ENDS.search(line) else KEY_LINES_MAX
        elif _PRIVATE_KEY_ENDS.search(line):
            self._left = 0
        elif self._left:
            self._left -= 1
            return _KEY_LINE.sub(HIDDEN, line)
        return line


def _hide(match: re.Match[str]) -> str:
    if _open(match):
        return match[0]
    if escaped := match.groupdict().get("escaped"):
        return f"{match['name']}{match['between']}{escaped}{HIDDEN}"
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['between']}{quote}{HIDDEN}{quote}"


def _open(match: re.Match[str]) -> bool:
    """Whether what stands in a secret's place is none: nothing, or the next word of a sentence about the option."""
    value = match["value"].lower()
    return value in _NOTHING or (match["between"].isspace() and value.rstrip(".,:;") in _PROSE)


def plain(value: object, key: str = "") -> object:
    """A copy of plain JSON data with secrets replaced in every string; command lines as a whole, since an option and
    its value are two words. `key` is the name that the value has where it came from.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {text(str(name)): plain(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if key in _COMMANDS:
            return command([str(word) for word in value])
        return [plain(item) for item in value]
    return value


def environ(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for a report: values only of names known to be harmless and telling, of all others the name."""
    return {name: text(value) if may_be_shown(name, value) else HIDDEN for name, value in env.items()}
