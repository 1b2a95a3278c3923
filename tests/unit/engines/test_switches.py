"""Option tables: the shipped ones hold together, and a user's own is refused with a clear word where it does not."""

from pathlib import Path

import pytest

from firstlight.engines.switch_entries import Off, OptionEntry, SwitchTable
from firstlight.engines.switches import TABLE_BYTES_MAX, parse_table, read_table, switch_table
from firstlight.engines.table import ENGINES
from firstlight.errors import UsageError

CAUSES = {path.stem for path in Path("src/firstlight/diagnose/causes").glob("[!_]*.py")}
TABLES = [switch_table(engine) for engine in ENGINES]


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse_table(text, "mine.toml")
    assert refused.value.way_out
    return refused.value.what


@pytest.mark.parametrize("shipped", TABLES, ids=ENGINES)
def test_every_suspicion_of_a_shipped_table_is_a_cause_that_exists(shipped: SwitchTable) -> None:
    for one in (*shipped.options, *shipped.variables, *shipped.features):
        assert set(one.suspects) <= CAUSES, one


@pytest.mark.parametrize("shipped", TABLES, ids=ENGINES)
def test_every_entry_of_a_shipped_table_can_be_off_or_says_why_not(shipped: SwitchTable) -> None:
    for one in shipped.options:
        assert one.fixed or one.off is not Off.NEGATED or one.names[0].startswith("--"), one
        assert not one.fixed or not one.suspects, one


def test_an_engine_that_nobody_knows_has_no_table() -> None:
    with pytest.raises(ValueError, match="no engine is called"):
        switch_table("llama")


def test_a_table_of_ones_own_also_knows_the_common_variables() -> None:
    table = parse_table('[[options]]\nname = "cache"\nnames = ["--cache"]\n', "mine.toml")

    assert table.options == (OptionEntry(name="cache", names=("--cache",)),)
    assert [one.prior for one in table.entries_of("LD_PRELOAD")]
    assert not list(table.entries_of("NCCL_VERSION"))
    assert not table.others


OPTION = '[[options]]\nname = "{0}"\nnames = ["--{0}"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("options = [", "not TOML"),
        ("colour = 1", "unknown field `colour`"),
        (OPTION.format("a") + "colour = 1", "a: Object contains unknown field `colour`"),
        (OPTION.format("a") + 'takes = "two"', "a: Invalid enum value 'two'"),
        (OPTION.format("a") + "prior = 10", "a: Expected `int` <= 9"),
        (OPTION.format("a") + 'effects = ["luck"]', "a: Invalid enum value 'luck'"),
        (OPTION.format("a") + 'phases = ["dawn"]', "a: Invalid enum value 'dawn'"),
        (OPTION.format("a") + 'needs = ["b"]', "a: 'b' is not in the table"),
        (OPTION.format("a") + 'conflicts = ["env:NOBODY"]', "a: 'env:NOBODY' is not in the table"),
        (OPTION.format("a") + 'off = "weakest"', "a: off is its weakest value"),
        (OPTION.format("a") * 2, "a: --a is in the table twice"),
        (OPTION.format("a") + 'until = "0.5"\n' + OPTION.format("a") + 'since = "0.5.2"', "twice"),
        (OPTION.format("a") + 'needs = ["a"]', "nothing can need itself"),
        (OPTION.format("a") + 'needs = ["b"]\n' + OPTION.format("b") + 'needs = ["a"]', "nothing can need itself"),
        ('[[options]]\nname = "a"\nnames = ["a"]', "begin with a dash"),
        ('[[options]]\nnames = ["--a"]', "missing required field `name`"),
        ('[[variables]]\nvariables = ["A", "B"]\ntogether = true', "A, B: variables that are one switch together"),
        ('[[features]]\nname = "f"', "f: nothing tells how to switch it off"),
        ('[[features]]\nname = "f"\nvariables = ["A"]', "f: nothing tells how to switch it off"),
        ('[[features]]\nname = "f"\nwords = ["--x"]\nunless = ["x"]', "f: 'x' is not in the table"),
        ("[[variables]]\n" + 'variables = ["A"]\nneeds = ["env:A"]', "nothing can need itself"),
    ],
)
def test_what_cannot_be_is_refused_and_the_entry_named(text: str, says: str) -> None:
    told = refusal(text)
    assert told.startswith("mine.toml")
    assert says in told


def test_the_same_name_may_mean_another_thing_in_other_versions() -> None:
    text = OPTION.format("a") + 'until = "0.5"\n' + OPTION.format("a") + 'since = "0.6"\n'
    assert len(parse_table(text, "mine.toml").options) == 2


def test_a_table_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OPTION.format("cache"))
    assert read_table(path).options[0].name == "cache"


def test_a_file_that_is_none_or_is_no_table_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (TABLE_BYTES_MAX + 1))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(bytes(range(256)))
    deep = tmp_path / "deep.toml"
    deep.write_text("a = " + "[" * 100_000)
    for path in (tmp_path, tmp_path / "none.toml", large, binary, deep):
        with pytest.raises(UsageError):
            read_table(path)
