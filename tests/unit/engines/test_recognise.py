"""Every way to start a server, and what its command line tells."""

import os
from pathlib import Path

import pytest

from firstlight.core.server import ServerCommand
from firstlight.engines import Sizes, profile_for, recognise
from firstlight.engines.command import layout


def read(line: str, environ: dict[str, str] | None = None) -> ServerCommand:
    return recognise(line.split(), environ or {})


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("vllm serve org/model", "vllm"),
        ("/opt/venv/bin/vllm serve org/model", "vllm"),
        ("python /opt/venv/bin/vllm serve org/model", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model org/model", "vllm"),
        ("python3.12 -u -m vllm.entrypoints.openai.api_server --model org/model", "vllm"),
        ("python3 -m vllm.entrypoints.cli.main serve org/model", "vllm"),
        ("/usr/bin/env CUDA_VISIBLE_DEVICES=0,1 vllm serve org/model", "vllm"),
        ("HF_HUB_OFFLINE=1 VLLM_LOGGING_LEVEL=DEBUG vllm serve org/model", "vllm"),
        ("uv run --with vllm vllm serve org/model", "vllm"),
        ("numactl --cpunodebind=0 --membind=0 vllm serve org/model", "vllm"),
        ("nohup nice -n 5 vllm serve org/model", "vllm"),
        ("python -m sglang.launch_server --model-path org/model", "sglang"),
        ("sglang serve --model-path org/model", "sglang"),
        ("sglang serve org/model", "sglang"),
        ("python /x/site-packages/sglang/launch_server.py --model org/model", "sglang"),
        ("firstlight serve org/model", "embedded"),
        ("python -m firstlight.embedded org/model", "embedded"),
        ("python -m firstlight serve org/model", "embedded"),
    ],
)
def test_all_launch_forms(line: str, engine: str) -> None:
    command = read(line)
    assert (command.engine, command.model) == (engine, "org/model")


@pytest.mark.parametrize(
    "line",
    [
        "python server.py --port 81",
        "./start-vllm.sh",
        "vllm bench serve",
        "python -m vllm.benchmarks.serve",
        "python -m firstlight.embedded.worker --rank 0",
        "grep vllm.entrypoints.openai.api_server notes.txt",
    ],
)
def test_what_only_mentions_an_engine_is_generic(line: str) -> None:
    assert read(line).engine == "generic"


def test_an_empty_command_is_generic_and_says_nothing() -> None:
    assert recognise([], {}) == ServerCommand(engine="generic", argv=())


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("vllm serve m", 8000),
        ("sglang serve m", 30000),
        ("firstlight serve m", 8000),
        ("firstlight serve m --port 0", 0),
        ("vllm serve m --port=8001", 8001),
        ("vllm serve m --port 1 --port 8002", 8002),
        ("sglang serve m --por 31000", 31000),
        ("vllm serve m --port $PORT", 0),
        ("vllm serve m --port 99999", 0),
        ("python server.py --port 81", 81),
        ("python server.py -p 82", 82),
        ("python server.py -p 83:84", 0),
        ("PORT=9000 python server.py", 9000),
        ("env PORT=9001 python server.py", 9001),
        ("python server.py --listen 0.0.0.0:8100", 8100),
        ("gunicorn -b :8101 app:app", 8101),
        ("gunicorn --bind unix:/run/app.sock app:app", 8000),
        ("server --bind http://127.0.0.1:8102/", 8102),
        ("uvicorn app:app", 8000),
        ("llama-server -m model.gguf", 8080),
        ("/opt/bin/llama-server -m model.gguf --port 8103", 8103),
        ("text-generation-launcher --model-id m", 3000),
        ("python -m http.server", 8000),
        ("python -m http.server 8104", 8104),
        ("python server.py", 0),
    ],
)
def test_the_port(line: str, port: int) -> None:
    assert read(line).port == port


def test_a_port_in_the_ambient_environment_is_not_the_servers() -> None:
    assert read("python server.py", {"PORT": "9000"}).port == 0
    assert read("vllm serve m", {"VLLM_PORT": "9000"}).port == 8000


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("vllm serve m", "http://127.0.0.1:8000"),
        ("vllm serve m --host 0.0.0.0", "http://127.0.0.1:8000"),
        ("vllm serve m --host ::", "http://[::1]:8000"),
        ("vllm serve m --host ::1", "http://[::1]:8000"),
        ("sglang serve m --host 10.1.2.3", "http://10.1.2.3:30000"),
        ("server --listen [::]:8100", "http://[::1]:8100"),
    ],
)
def test_where_a_client_reaches_it(line: str, url: str) -> None:
    assert read(line).url == url


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("vllm serve m", 1),
        ("vllm serve m --tensor-parallel-size 8", 8),
        ("vllm serve m --tensor_parallel_size=8", 8),
        ("vllm serve m -tp 2 -pp=2 -dp 2", 8),
        ("vllm serve m -tp 2 --data-parallel-size 4 --data-parallel-size-local 2", 4),
        ("vllm serve m -tp 2 --data-parallel-size 4 --data-parallel-rank 1", 2),
        ("vllm serve m -tp 16 --nnodes 2 --node-rank 1", 8),
        ("vllm serve m -tp many", 0),
        ("sglang serve m --tp 4", 4),
        ("sglang serve m --tp-size 4 --dp 2", 8),
        ("sglang serve m --tp 8 --dp 2 --enable-dp-attention", 8),
        ("sglang serve m --pp-size 2 --tp 4 --nnodes 2", 4),
        ("firstlight serve m", 1),
        ("torchrun --nproc-per-node=4 train.py", 4),
        ("python -m torch.distributed.run --nproc_per_node 3 serve.py", 3),
        ("mpirun -np 2 -x A=b ./server", 2),
        ("python server.py -n 7", 0),
    ],
)
def test_ranks_on_this_node(line: str, ranks: int) -> None:
    assert read(line).ranks == ranks


def test_variables_in_front_are_taken_off_the_command_and_kept() -> None:
    command = read("A=b C=d=e vllm serve m")
    assert command.argv == ("vllm", "serve", "m")
    assert command.env == (("A", "b"), ("C", "d=e"))


def test_env_stays_part_of_the_command() -> None:
    command = read("env VLLM_API_KEY=k vllm serve m")
    assert command.argv[0] == "env"
    assert command.env == ()
    assert command.api_key == "k"


@pytest.mark.parametrize(
    ("line", "environ", "key"),
    [
        ("vllm serve m", {}, ""),
        ("vllm serve m --api-key k1 k2", {}, "k1"),
        ("vllm serve m", {"VLLM_API_KEY": "k"}, "k"),
        ("VLLM_API_KEY=front vllm serve m", {"VLLM_API_KEY": "ambient"}, "front"),
        ("vllm serve m --api-key option", {"VLLM_API_KEY": "ambient"}, "option"),
        ("sglang serve m", {"VLLM_API_KEY": "k"}, ""),
        ("python server.py", {"FIRSTLIGHT_API_KEY": "told"}, "told"),
        ("vllm serve m --api-key option", {"FIRSTLIGHT_API_KEY": "told"}, "told"),
    ],
)
def test_the_api_key(line: str, environ: dict[str, str], key: str) -> None:
    assert read(line, environ).api_key == key


def test_the_served_name_is_the_first_of_the_list() -> None:
    assert read("vllm serve m --served-model-name first second --port 81").served_name == "first"
    assert read("vllm serve m").served_name == ""


@pytest.mark.parametrize(
    ("script", "engine", "port", "ranks"),
    [
        ("vllm serve m --port 8001", "vllm", 8001, 1),
        ("cd /models && exec vllm serve m --port 8001 -tp 2", "vllm", 8001, 2),
        ("source venv/bin/activate; vllm serve m --port 8001 2>&1 | tee -a log --port 1", "vllm", 8001, 1),
        ("export A=b\nsglang serve m \\\n  --port 8001 > log", "sglang", 8001, 1),
        ("vllm serve m --port '8001'", "vllm", 8001, 1),
        ("vllm serve m --port ${PORT:-8001}", "vllm", 0, 1),
        ("python server.py --port 8001", "generic", 8001, 0),
        ("echo ready && PORT=8001 python server.py", "generic", 8001, 0),
        ("echo 'a quote that never closes", "generic", 0, 0),
    ],
)
def test_a_shell_line_is_looked_into(script: str, engine: str, port: int, ranks: int) -> None:
    for shell in (["bash", "-c"], ["/bin/sh", "-ec"], ["env", "A=b", "bash", "-l", "-c"]):
        command = recognise([*shell, script], {})
        assert (command.engine, command.port, command.ranks) == (engine, port, ranks)
        assert command.argv[-1] == script


def test_a_config_file_fills_in_what_the_command_does_not_say(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text(
        "# how we serve\n"
        "model: org/model   # the big one\n"
        "port: 8055\n"
        "tensor_parallel_size: 4\n"
        "served-model-name:\n"
        "  - 'first'\n"
        "  - second\n"
        "compilation_config:\n"
        "  port: 1\n"
    )
    command = recognise(["vllm", "serve", "--config", str(config), "-tp", "2"], {})
    assert (command.model, command.port, command.ranks, command.served_name) == ("org/model", 8055, 2, "first")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00garbage", b"- only\n- a list\n", b"", b"{json: [1, 2]}"])
def test_a_config_file_that_cannot_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "server.yaml"
    config.write_bytes(content)
    assert recognise(["vllm", "serve", "m", "--config", str(config)], {}).port == 8000


def test_a_config_file_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, tmp_path / "missing"):
        assert recognise(["vllm", "serve", "m", "--config", str(path)], {}).port == 8000


def test_the_layout_of_ranks_is_known_to_the_profile_of_a_command() -> None:
    assert layout(read("vllm serve m -tp 2 -pp 3")) == Sizes(2, 3)
    assert layout(read("sglang serve m --tp 4 --enable-dp-attention")) == Sizes(4, 1, data_inside=True)
    assert layout(read("python server.py")) == Sizes()
    identity = profile_for(read("vllm serve m -tp 2 -dp 2")).identify(("VLLM::Worker_DP1_TP1",), "VLLM::Worker_DP")
    assert identity.rank == 3
