"""The import table of the design, read as data: a wrong import fails here, with the line that does it."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "firstlight"
TABLE: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "imports.toml").read_text())["may_import"]


def part_of(path: Path) -> str:
    """The part of the house a file belongs to: its first folder, or its own name at the top."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Every part that a file imports, the line, and whether it is lazy."""
    tree = ast.parse(path.read_text())
    inside = {id(node) for block in ast.walk(tree) if is_lazy(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the whole name"
            names = [node.module or ""]
            if node.module == "firstlight":
                names = [f"firstlight.{alias.name}" for alias in node.names]
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "firstlight" and len(pieces) > 1 and pieces[1] != "__version__":
                yield pieces[1], node.lineno, id(node) in inside


def is_lazy(block: ast.AST) -> bool:
    """A function, or a block for the type checker only: what it imports costs nothing at start."""
    if isinstance(block, ast.If):
        return isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
    return isinstance(block, ast.FunctionDef | ast.AsyncFunctionDef)


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent != SOURCE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_part_may(path: Path) -> None:
    part = part_of(path)
    if part == "__main__":
        part = "cli"
    assert part in TABLE, f"{part} is not in the import table (tests/tidy/imports.toml)"
    allowed = TABLE[part]
    for target, line, lazy in imports(path):
        if target == part:
            continue
        if allowed == ["*"]:
            light = target in {"core", "errors", "clock"}
            assert lazy or light, f"{path}:{line}: cli imports {target} at the top; do it in the command"
        else:
            assert target in allowed, f"{path}:{line}: {part} may not import {target}; it may: {allowed}"


def test_only_the_engine_and_the_drafter_import_torch() -> None:
    for path in FILES:
        if part_of(path) in {"embedded", "drafter"} or {"programs", "faults"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(alias.name.split(".")[0] != "torch" for alias in node.names), path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "torch", path


def test_every_part_in_the_table_exists() -> None:
    parts = {part_of(path) for path in FILES}
    assert set(TABLE) <= parts | {"__main__"}, f"no empty rooms: {set(TABLE) - parts}"
