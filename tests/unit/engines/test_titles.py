"""Process titles and program names, as seen in /proc."""

import pytest

from firstlight.core.vocabulary import Role
from firstlight.engines import Sizes, profile
from firstlight.engines.titles import identify


@pytest.mark.parametrize(
    ("title", "role", "label", "rank"),
    [
        ("VLLM::Worker", Role.WORKER, "Worker", 0),
        ("VLLM::Worker_TP3", Role.WORKER, "Worker_TP3", 3),
        ("VLLM::Worker_DP1_PP0_TP3_EP7", Role.WORKER, "Worker_DP1_PP0_TP3_EP7", 3),
        ("mine::Worker_TP1", Role.WORKER, "Worker_TP1", 1),
        ("VLLM::EngineCore", Role.ENGINE, "EngineCore", -1),
        ("VLLM::EngineCore_DP1", Role.ENGINE, "EngineCore_DP1", -1),
        ("VLLM::APIServer_2", Role.FRONT, "APIServer_2", -1),
        ("VLLM::DPCoordinator", Role.HELPER, "DPCoordinator", -1),
        ("sglang::scheduler", Role.WORKER, "scheduler", 0),
        ("sglang::scheduler_TP1", Role.WORKER, "TP1", 1),
        ("sglang::scheduler_DP0_TP3", Role.WORKER, "DP0 TP3", 3),
        ("sglang::scheduler_DP1_PP0_ATTN_CP1_MOE_DP0_TP3_EP3", Role.WORKER, "DP1 PP0 ATTN_CP1 MOE_DP0 TP3 EP3", 3),
        ("sglang::data_parallel_controller", Role.ENGINE, "data_parallel_controller", -1),
        ("sglang::detokenizer", Role.HELPER, "detokenizer", -1),
        ("sglang::detokenizer_router", Role.HELPER, "detokenizer_router", -1),
        ("sglang::http_server/tokenizer_manager", Role.FRONT, "http_server/tokenizer_manager", -1),
        ("sglang::tokenizer_worker:4711", Role.FRONT, "tokenizer_worker:4711", -1),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "generic"])
def test_titles_are_known_whatever_the_engine_was_taken_for(
    title: str, role: Role, label: str, rank: int, engine: str
) -> None:
    identity = profile(engine).identify((title,), title[:15])
    assert (identity.role, identity.label, identity.rank, identity.name) == (role, label, rank, title)


@pytest.mark.parametrize(
    ("cmdline", "comm", "role", "label", "rank"),
    [
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "python3", Role.FRONT, "APIServer", -1),
        ("/v/bin/python3.12 /v/bin/vllm serve m", "vllm", Role.FRONT, "APIServer", -1),
        ("python -m sglang.launch_server --model-path m", "python", Role.FRONT, "http_server", -1),
        ("python -m firstlight.embedded m", "fl-front", Role.FRONT, "front", -1),
        ("python /v/bin/firstlight serve m", "python", Role.FRONT, "front", -1),
        ("python -m firstlight.embedded.worker --rank 2 --model m", "fl-worker-2", Role.WORKER, "worker rank=2", 2),
        ("python -m firstlight.embedded.worker --model m --rank 2", "python", Role.WORKER, "worker rank=2", 2),
        ("python -m firstlight.embedded.front.template_process", "fl-template", Role.HELPER, "template", -1),
        ("python -m firstlight.embedded.front.template_process", "python", Role.HELPER, "template", -1),
        ("bash -c vllm serve m", "bash", Role.OTHER, "", -1),
        ("uv run vllm serve m", "uv", Role.OTHER, "", -1),
    ],
)
def test_programs_that_keep_their_command_line(cmdline: str, comm: str, role: Role, label: str, rank: int) -> None:
    identity = identify(cmdline.split(), comm)
    assert (identity.role, identity.label, identity.rank) == (role, label, rank)


@pytest.mark.parametrize(
    "program",
    [
        *(
            "nvcc",
            "cicc",
            "ptxas",
            "cudafe++",
            "ninja",
            "cc1plus",
            "gcc",
            "g++-12",
            "c++",
            "clang-17",
            "ld",
            "as",
            "ld.lld",
        ),
        "x86_64-linux-gnu-g++-13",
        "/v/lib/python3.11/site-packages/triton/backends/nvidia/bin/ptxas",
    ],
)
def test_compilers(program: str) -> None:
    assert identify((program, "-c", "kernel.cu"), program.rpartition("/")[2][:15]).role is Role.COMPILER


def test_an_inductor_worker_is_a_compiler() -> None:
    cmdline = ("python", "/v/torch/_inductor/compile_worker/__main__.py", "--workers=8", "--parent=1")
    assert identify(cmdline, "python").role is Role.COMPILER


@pytest.mark.parametrize(
    ("cmdline", "role", "name"),
    [
        (
            ("python", "-c", "from multiprocessing.resource_tracker import main;main(5)"),
            Role.HELPER,
            "multiprocessing tracker",
        ),
        (
            ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)", "--multiprocessing-fork"),
            Role.OTHER,
            "multiprocessing child",
        ),
        (("python3", "-u", "/srv/server.py", "--port", "1"), Role.OTHER, "python server.py"),
        (("python3", "-m", "uvicorn", "app:app"), Role.OTHER, "python -m uvicorn"),
        (("/bin/sleep", "60"), Role.OTHER, "sleep"),
        ((), Role.OTHER, "defunct"),
    ],
)
def test_everything_else_has_a_name(cmdline: tuple[str, ...], role: Role, name: str) -> None:
    identity = identify(cmdline, "defunct")
    assert (identity.role, identity.name) == (role, name)


@pytest.mark.parametrize(
    ("title", "sizes", "rank"),
    [
        ("VLLM::Worker_DP1_PP1_TP1", Sizes(2, 2), 7),
        ("VLLM::Worker_PP1_TP0", Sizes(2, 2), 2),
        ("sglang::scheduler_PP1_TP3", Sizes(4, 2), 7),
        ("sglang::scheduler", Sizes(1, 1), 0),
        ("VLLM::Worker", Sizes(2, 1), -1),
        ("sglang::scheduler_DP1_TP3", Sizes(4, 1, data_inside=True), 3),
    ],
)
def test_known_sizes_give_one_number(title: str, sizes: Sizes, rank: int) -> None:
    assert identify((title,), title[:15], sizes).rank == rank


@pytest.mark.parametrize(
    ("cmdline", "label", "rank"),
    [
        (("worker_TP1",), "worker_TP1", 1),
        (("rank 3",), "rank 3", 3),
        (("python", "train.py", "--rank", "2"), "rank 2", 2),
        (("python", "serve.py", "--local-rank=5", "--port", "1"), "rank 5", 5),
        (("python", "serve.py", "--local_rank=0"), "rank 0", 0),
    ],
)
def test_ranks_of_unknown_servers_are_known_where_they_say_so(
    cmdline: tuple[str, ...], label: str, rank: int
) -> None:
    identity = identify(cmdline, cmdline[0][:15])
    assert (identity.role, identity.label, identity.rank) == (Role.WORKER, label, rank)


def test_a_server_that_takes_no_rank_is_no_worker() -> None:
    assert identify(("python", "serve.py", "--rank-by", "2"), "python").role is Role.OTHER
