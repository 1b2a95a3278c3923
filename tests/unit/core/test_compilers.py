"""Compilers are known by the name of the program, also by what the kernel keeps of it."""

import pytest

from firstlight.core.compilers import is_compiler

COMPILERS = (
    "nvcc cicc ptxas cc1plus c++ g++ x86_64-linux-gn ninja ld ld.lld clang-15 lto1 x86_64-linux-gnu-g++-12"
    " x86_64-conda-linux-gnu-c++ musl-gcc hipconfig"
)


@pytest.mark.parametrize("name", COMPILERS.split())
def test_these_compile(name: str) -> None:
    assert is_compiler(name)


@pytest.mark.parametrize("name", ["python", "bash", "cat", "lsof", "gccgo-server", "passwd", "remake", "torch-as"])
def test_these_do_not(name: str) -> None:
    assert not is_compiler(name)
