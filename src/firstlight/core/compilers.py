"""Which programs compile: engines start them for kernels, and locks of builds are theirs."""

import re

_COMPILER = re.compile(
    r"(?:[\w.-]+-(?:gnu|musl)\w*-|musl-)?"
    r"(?:nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink|hipcc|hipconfig|ninja|make|cmake|cc1|cc1plus|lto1|collect2|as|lld"
    r"|ld(?:\.\w+)?|cc|c\+\+|gcc|g\+\+|clang|clang\+\+|icpx|dpcpp)(?:-\d[\d.]*)?"
    r"|x86_64-linux-gn|aarch64-linux-g"
)
"""The last two are what is left of a cross compiler's name after fifteen letters."""


def is_compiler(program: str) -> bool:
    """Whether a program of this name compiles. The kernel's name of a process, its first fifteen letters, will do."""
    return _COMPILER.fullmatch(program) is not None
