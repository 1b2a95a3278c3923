"""From a command to its switches and back: what stays is as it was typed, and only what is off is gone."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.core.server import ServerCommand
from firstlight.engines import recognise
from firstlight.engines.switches import parse_table, switch_table
from firstlight.errors import UsageError
from firstlight.isolate.problem import Setting
from firstlight.isolate.space import CommandSpace, command_of, space_of

VLLM = (
    "NCCL_DEBUG=INFO numactl -N 0 vllm serve org/model -tp 8 --max_model_len=32k --enable-prefix-caching -O3"
    """ --speculative-config '{"method": "eagle3"}' -sc.num_speculative_tokens=3 --port 8000 --block-size 16"""
)


def read(
    line: str, environ: Mapping[str, str] | None = None, *, version: str = "", features: bool = False
) -> CommandSpace:
    environ = environ or {}
    command = recognise(shlex.split(line), environ)
    return space_of(command, environ, switch_table(command.engine), version, features=features)


def full(space: CommandSpace) -> Setting:
    return space.sensible(space.names)


def line(command: ServerCommand) -> str:
    """The command as one would type it."""
    return shlex.join([*(f"{name}={value}" for name, value in command.env), *command.argv])


def without(space: CommandSpace, *names: str) -> str:
    return line(command_of(space, full(space) - frozenset(names)))


def only(space: CommandSpace, *names: str) -> str:
    return line(command_of(space, frozenset(names)))


def labels(space: CommandSpace, name: str) -> list[str]:
    return [level.label for level in space.switch(name).levels]


# There and back

WORDS = st.lists(
    st.sampled_from(
        [
            ("--tensor-parallel-size", "4"),
            ("-tp=2",),
            ("--tensor_parallel", "8"),
            ("--enforce-eager",),
            ("--no-enable-prefix-caching",),
            ("--cudagraph-capture-sizes", "1", "2", "4"),
            ("--speculative-config", '{"method": "ngram"}'),
            ("-sc.model=x y",),
            ("--max-model-len", "4096"),
            ("--gpu-memory-utilization=0.95",),
            ("--api-key", "s3cret", "another"),
            ("--no-such-option", "a", "b"),
            ("--seed", "-1"),
            ("-O2",),
            ("-x", "y"),
            ("",),
            ("word with 'quotes' and $dollars",),
        ]
    ),
    max_size=8,
)
FRONTS = st.sampled_from(
    ["vllm serve m", "A=1 NCCL_DEBUG=INFO python -m vllm.entrypoints.openai.api_server", "./run.sh"]
)
ENVIRONMENTS = st.dictionaries(
    st.sampled_from(["NCCL_DEBUG", "http_proxy", "HTTPS_PROXY", "LD_PRELOAD", "HOME", "VLLM_USE_V1"]),
    st.text("ab=:/", max_size=5),
)


@given(FRONTS, WORDS, ENVIRONMENTS, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_everything_as_given_is_the_given_command_and_the_rest_only_lacks(
    front: str, words: list[tuple[str, ...]], environ: dict[str, str], pick: object
) -> None:
    argv = [*front.split(), *(word for some in words for word in some)]
    command = recognise(argv, environ)
    space = space_of(command, environ, switch_table(command.engine), features=False)

    assert command_of(space, full(space)) == command
    taken = [word for piece in space.pieces for word in piece.words]
    assert tuple(taken) == command.argv
    setting = frozenset(name for name in space.names if pick.random() < 0.5)  # type: ignore[attr-defined]
    kept = [
        word
        for piece in space.pieces
        if piece.switch not in set(space.names) - space.sensible(setting)
        for word in piece.words
    ]
    shown = iter(command_of(space, setting).argv)
    assert all(word in shown for word in kept), "in order, as they were typed"


@given(WORDS)
@settings(max_examples=50, deadline=None)
def test_the_words_of_a_shell_line_survive_it(words: list[tuple[str, ...]]) -> None:
    inner = ["exec", "vllm", "serve", "m", "--block-size", "16", *(word for some in words for word in some)]
    command = recognise(["bash", "-c", shlex.join(inner)], {})
    space = space_of(command, {}, switch_table("vllm"), features=False)

    assert command_of(space, full(space)) is command
    changed = command_of(space, full(space) - {"block-size"})
    assert changed.argv[:2] == ("bash", "-c")
    assert shlex.split(changed.argv[2]) == [word for word in inner if word not in {"--block-size", "16"}]


# Options


def test_an_option_goes_with_its_values_and_nothing_else() -> None:
    space = read(VLLM)
    assert without(space, "speculation") == (
        "NCCL_DEBUG=INFO numactl -N 0 vllm serve org/model -tp 8 --max_model_len=32k --enable-prefix-caching -O3"
        " --port 8000 --block-size 16"
    )
    assert without(space, "block-size").endswith("--port 8000")


def test_with_everything_off_the_model_and_the_port_stay() -> None:
    assert only(read(VLLM)) == (
        "numactl -N 0 vllm serve org/model --max_model_len=8000 --no-enable-prefix-caching -O0 --port 8000"
    )


def test_speculation_is_one_switch_in_every_engine() -> None:
    sglang = read("python -m sglang.launch_server --model m --speculative-algorithm EAGLE --speculative-num-steps 3")
    ours = read("firstlight serve demo --drafter ngram --draft-tokens 3")

    assert read(VLLM).switch("speculation").kind == "group"
    assert only(sglang) == "python -m sglang.launch_server --model m"
    assert only(ours) == "firstlight serve demo"


def test_values_are_weakened_in_the_spelling_that_was_typed() -> None:
    space = read(VLLM)
    assert labels(space, "tensor-parallel-size") == ["-tp 8", "-tp 4", "-tp 2", "without -tp"]
    assert labels(space, "max-model-len") == ["--max_model_len=32k", "--max_model_len=8000"]
    assert labels(space, "optimization-level") == ["-O3", "-O2", "-O1", "-O0"]
    weaker = command_of(space, full(space), {"tensor-parallel-size": 1})
    assert "vllm serve org/model -tp 4 --max_model_len=32k" in line(weaker)
    assert weaker.ranks == 4
    assert labels(read("vllm serve m --cudagraph-capture-sizes 1 2 4 8"), "cudagraph-capture-sizes")[1:3] == [
        "--cudagraph-capture-sizes 1 2",
        "--cudagraph-capture-sizes 1",
    ]


def test_an_option_that_says_the_default_is_nothing_to_flip() -> None:
    space = read("vllm serve m -tp 1 --gpu-memory-utilization 0.5 --max-model-len 2048 --no-enable-prefix-caching")
    assert space.names == ()
    assert all(one.fixed for one in space.switches)


def test_the_default_depends_on_the_version() -> None:
    command = "vllm serve m --gpu-memory-utilization 0.91"
    assert read(command, version="0.33.0").names == ()
    assert read(command, version="0.10.2").names == ("gpu-memory-utilization",)


def test_a_secret_stays_out_of_what_is_shown() -> None:
    space = read("vllm serve m --api-key s3cret", {"http_proxy": "http://u:s3cret@proxy"})
    assert "s3cret" not in " ".join(level.label for one in space.switches for level in one.levels)


def test_an_option_given_twice_is_one_switch() -> None:
    assert only(read("vllm serve m -tp 2 --dtype half --tensor-parallel-size=4")) == "vllm serve m"


def test_what_calms_a_server_stays_so_that_nothing_is_added_by_taking_away() -> None:
    line_of_calm = "vllm serve m --enforce-eager --disable-custom-all-reduce --kv-cache-memory-bytes 268435456"
    assert read(line_of_calm).names == ()


def test_needs_hold_only_among_what_was_given() -> None:
    given_alone = read("python -m sglang.launch_server --model m --enable-dp-attention")
    both = read("python -m sglang.launch_server --model m --enable-dp-attention --dp 2")

    assert "--enable-dp-attention" in line(command_of(given_alone, full(given_alone)))
    assert both.switch("dp-attention").needs == ("dp-size",)
    assert "--enable-dp-attention" not in without(both, "dp-size")


# Variables


def test_a_variable_is_off_wherever_it_was_set() -> None:
    assert without(read("NCCL_DEBUG=INFO vllm serve m"), "env:NCCL_DEBUG") == "vllm serve m"
    assert without(read("env NCCL_DEBUG=INFO vllm serve m"), "env:NCCL_DEBUG") == "env vllm serve m"
    inherited = read("NCCL_DEBUG=INFO vllm serve m", {"NCCL_DEBUG": "WARN"})
    assert without(inherited, "env:NCCL_DEBUG") == "env -u NCCL_DEBUG vllm serve m"
    assert command_of(inherited, frozenset()).engine == "vllm"


@pytest.mark.parametrize(
    "front", ["env -u LD_PRELOAD", "/usr/bin/env --unset=LD_PRELOAD", "env -uLD_PRELOAD", "numactl -N 0 env -i"]
)
def test_what_the_command_takes_away_itself_is_no_switch(front: str) -> None:
    space = read(f"{front} A=1 VLLM_USE_V1=0 vllm serve m -tp 2", {"LD_PRELOAD": "/x.so"})
    assert "env:LD_PRELOAD" not in space.names
    assert "env:VLLM_USE_V1" in space.names
    assert only(space).startswith(front)
    assert "VLLM_USE_V1" not in only(space)


def test_what_the_command_takes_away_itself_is_not_said_twice() -> None:
    space = read("env -u HTTP_PROXY vllm serve m", {"LD_PRELOAD": "/x.so", "HTTP_PROXY": "http://x"})
    assert space.names == ("env:LD_PRELOAD",)
    assert only(space) == "env -u LD_PRELOAD -u HTTP_PROXY vllm serve m"


def test_proxies_are_one_switch_and_only_what_is_set_is_unset() -> None:
    space = read("http_proxy=a vllm serve m", {"HTTPS_PROXY": "b", "HOME": "/", "NCCL_VERSION": "2"})
    assert space.names == ("proxies",)
    assert only(space) == "env -u HTTPS_PROXY vllm serve m"


def test_which_gpus_there_are_is_not_for_us_to_change() -> None:
    assert read("vllm serve m", {"CUDA_VISIBLE_DEVICES": "0"}).switches == ()
    assert read("CUDA_VISIBLE_DEVICES=0 vllm serve m").switch("env:CUDA_VISIBLE_DEVICES").fixed


def test_where_temporary_files_lie_is_a_switch_where_the_command_says_so() -> None:
    assert read("TMPDIR=/shared vllm serve m", {"TMPDIR": "/other"}).names == ("env:TMPDIR",)
    assert read("vllm serve m", {"TMPDIR": "/other"}).names == ()


def test_what_a_server_may_not_start_without_is_only_taken_if_the_command_sets_it() -> None:
    assert read("vllm serve m", {"PYTHONPATH": "/x", "LD_LIBRARY_PATH": "/y"}).names == ()
    assert read("PYTHONPATH=/x vllm serve m").names == ("env:PYTHONPATH",)


# What the server does unasked


def test_features_are_switched_off_by_what_is_added() -> None:
    space = read("vllm serve m -tp 2", version="0.33.0", features=True)
    assert without(space, "graphs") == "VLLM_DISABLE_COMPILE_CACHE=1 vllm serve m -tp 2 --enforce-eager"
    assert without(space, "peer-to-peer") == "NCCL_P2P_DISABLE=1 vllm serve m -tp 2"


def test_features_are_none_where_the_command_decides_or_there_is_one_rank() -> None:
    one = read("vllm serve m --enforce-eager", features=True).names
    assert not {"graphs", "compile-cache", "peer-to-peer", "custom-all-reduce"} & set(one)
    calmed = read("NCCL_P2P_DISABLE=1 vllm serve m -tp 2", {"NCCL_IB_DISABLE": "1"}, features=True).names
    assert not {"peer-to-peer", "infiniband", "env:NCCL_P2P_DISABLE", "env:NCCL_IB_DISABLE"} & set(calmed)


# Files of options


def test_a_flat_file_counts_as_its_options(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("# ours\nmodel: org/m\ntensor-parallel-size: 4\nenforce-eager: true\nasync-scheduling: false\n")
    space = read(f"vllm serve --config {path} --block-size 16")

    assert line(command_of(space, full(space))) == f"vllm serve --config {path} --block-size 16"
    assert without(space, "block-size") == (
        "vllm serve --model org/m --tensor-parallel-size 4 --enforce-eager --no-async-scheduling"
    )
    assert without(space, "tensor-parallel-size") == (
        "vllm serve --model org/m --enforce-eager --no-async-scheduling --block-size 16"
    )


@pytest.mark.parametrize(
    "text", ["a:\n  b: 1\n", "a: {b: 1}\n", "a: &x 1\n", "a: |\n  text\n", "- a\n", "a: null\n", ""]
)
def test_any_other_file_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    space = read(f"vllm serve m --config {path} --block-size 16")
    assert space.switch("config").fixed
    assert only(space) == f"vllm serve m --config {path}"


# Shells, containers, unknown servers


@pytest.mark.parametrize(
    "inner",
    [
        "cd /x && vllm serve m --block-size 16",
        "vllm serve $MODEL --block-size 16",
        "vllm serve m --block-size `size`",
        "vllm serve m --block-size 16 > log",
        "vllm serve m --block-size 16; echo done",
        "vllm serve ~/m --block-size 16",
        "vllm serve m\nvllm serve n",
        'vllm serve "$MODEL"',
    ],
)
def test_a_shell_line_that_does_more_is_refused_with_a_way_out(inner: str) -> None:
    command = recognise(["bash", "-c", inner], {})
    with pytest.raises(UsageError) as refused:
        space_of(command, {}, switch_table(command.engine))
    assert "own command" in refused.value.way_out


def test_a_shell_line_may_hold_variables() -> None:
    space = read('sh -c \'NCCL_DEBUG=INFO HOME="x y" A="x y" exec vllm serve m --block-size 16\'')
    assert command_of(space, frozenset()).argv == ("sh", "-c", "HOME='x y' exec vllm serve m")
    assert "A='x y'" in command_of(space, frozenset({"env:A"})).argv[2]


def test_a_variable_that_nobody_knows_is_a_switch_where_the_command_sets_it() -> None:
    assert only(read("env SHINY=1 PORT=80 python server.py --fast", {"OTHER": "1"})) == "env PORT=80 python server.py"
    assert without(read("SHINY=1 vllm serve m"), "env:SHINY") == "vllm serve m"
    assert read("vllm serve m", {"SHINY": "1", "HOME": "/"}).names == ()
    listed = parse_table('[[options]]\nname = "fast"\nnames = ["--fast"]\n', "mine.toml")
    assert space_of(recognise(["env", "SHINY=1", "./server", "--fast"], {}), {}, listed).names == ("fast",)


def test_the_options_of_a_container_are_not_taken_for_the_servers() -> None:
    with pytest.raises(UsageError, match="container"):
        read("docker run --gpus all image --port 80")


def test_a_server_that_nobody_knows_has_its_long_options_for_switches() -> None:
    space = read("python server.py --verbose --port 80 --model-dir x --ctx 5 --sizes 1 2 -m pos")
    assert space.names == ("verbose", "ctx", "sizes")
    assert only(space) == "python server.py --port 80 --model-dir x -m pos"


def test_a_script_is_never_the_value_of_an_option() -> None:
    assert only(read("torchrun --nproc-per-node 4 server.py --fast")) == "torchrun server.py"


def test_a_table_of_ones_own_leaves_alone_what_it_does_not_list() -> None:
    table = parse_table('[[options]]\nname = "cache"\nnames = ["--cache"]\n', "mine.toml")
    command = recognise(["./server", "--cache", "big", "positional", "--other", "1"], {})
    space = space_of(command, {}, table)
    assert space.names == ("cache",)
    assert only(space) == "./server positional --other 1"


def test_names_and_levels_that_are_not_there_are_an_error() -> None:
    space = read(VLLM)
    with pytest.raises(IndexError):
        command_of(space, full(space), {"tensor-parallel-size": 9})
