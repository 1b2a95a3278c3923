"""NCCL's RAS service, played by a small server on loopback with answers in the forms of 2.28 and 2.27."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.evidence.conftest import Programs

from firstlight.clock import Deadline, SystemClock
from firstlight.core.collective import Communicator
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.collectives import communicators, is_safe_to_ask, ras, ras_address
from firstlight.evidence.collectives.ras_answers import from_json, from_text

TEXT = """\
NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH
    1         1         1         3         4         4   RUNNING  INCOMPLETE
    2         1         1         2         2         2      INIT      OK
    3         1         1         2         2         2   RUNNING  ERROR

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 4713 on node 10.0.0.1 managing GPU 3

#1-0 (00000000deadbeef) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 4713 on node 10.0.0.1

#3-0 (0000000000000abc) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported Remote process error -- GPU 1 managed by process 4711 on node 10.0.0.1

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 6650
  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process 4712 on node 10.0.0.1

"""


def rank(number: int, launched: int = 10, **status: Any) -> dict[str, Any]:
    given = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    counts = {"Broadcast": 1, "Reduce": 0, "AllGather": 2, "ReduceScatter": 0, "AllReduce": launched}
    about = {"rank": number, "host": "10.0.0.1", "pid": 4710 + number, "cuda_dev": number, "nvml_dev": number}
    return about | {"status": given | status, "collective_counts": counts}


def missing(number: int, *, unresponsive: bool, dead: bool) -> dict[str, Any]:
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {"rank": number, "host": "10.0.0.1", "pid": -1, "cuda_dev": 0, "nvml_dev": 0, "status": status}


ANSWER = {
    "nccl_version": "2.28.9",
    "cuda_runtime_version": 12090,
    "cuda_driver_version": 13000,
    "timestamp": "2026-11-29 12:00:00",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0x27a079b828ff1a75",
            "secondary_hash": "0x1:0x2",
            "size": 6,
            "ranks_count": 4,
            "missing_ranks_count": 2,
            "ranks": [rank(0), rank(1, 9), rank(2, init_state=7), rank(3, async_error=6)],
            "missing_ranks": [missing(4, unresponsive=True, dead=True), missing(5, unresponsive=False, dead=False)],
        }
    ],
    "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
}

OF_JSON = Communicator(
    id="0x27a079b828ff1a75",
    ranks=6,
    missing=(4, 5),
    unresponsive=(4,),
    dead=(4,),
    initialising=(2,),
    counts=((0, 13), (1, 12), (2, 13), (3, 13)),
    error="rank 3: remote process error",
)


class Service:
    """Answers one client as a RAS service would, or as `status` does instead."""

    def __init__(self, version: str, status: Callable[[socket.socket], None]) -> None:
        self._speaks_json = version >= "2.28"
        self._status = status
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(20)
        self.port = self._server.getsockname()[1]
        self.asked: list[str] = []
        self.released = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._server.accept()
        with client, client.makefile("r", encoding="ascii") as lines:
            for line in lines:
                self.asked.append(line.strip())
                word = line.split()[0]
                if line.strip() == "VERBOSE STATUS":
                    self._status(client)
                    return
                known = word == "TIMEOUT" or (word == "SET" and self._speaks_json)
                reply = "SERVER PROTOCOL 2" if word == "CLIENT" else "OK" if known else f"ERROR: Unknown {word}"
                client.sendall(f"{reply}\n".encode())

    def close(self) -> None:
        self.released.set()
        self._server.close()
        self._thread.join(20)


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(version: str, status: Callable[[socket.socket], None]) -> Service:
        started.append(Service(version, status))
        return started[-1]

    yield start
    for one in started:
        one.close()


def within(seconds: float = 20) -> Deadline:
    return Deadline(SystemClock(), seconds, "RAS")


def asked(service: Service, deadline: Deadline | None = None) -> tuple[Communicator, ...] | Gap:
    return communicators("localhost", service.port, deadline or within())


def test_a_new_service_answers_in_json(serve: Callable[..., Service]) -> None:
    service = serve("2.28.9", lambda client: client.sendall(json.dumps(ANSWER, indent=2).encode()))
    assert asked(service) == (OF_JSON,)
    assert service.asked[0] == "CLIENT PROTOCOL 2"
    assert service.asked[-2:] == ["SET FORMAT json", "VERBOSE STATUS"]


def test_an_old_service_answers_in_words(serve: Callable[..., Service]) -> None:
    service = serve("2.27.5", lambda client: client.sendall(TEXT.encode()))
    assert asked(service) == from_text(TEXT)


def test_the_words_of_old_services_are_understood() -> None:
    mismatch, incomplete, starting, broken = from_text(TEXT)
    assert mismatch == Communicator(
        id="0x27a079b828ff1a75", ranks=4, counts=((0, 6650), (1, 6650), (2, 6649), (3, 6650))
    )
    assert incomplete == Communicator(id="0xdeadbeef", ranks=4, missing=(3,), unresponsive=(3,))
    assert starting == Communicator(id="#2-0", ranks=2, initialising=(0, 1))
    assert broken == Communicator(id="0xabc", ranks=2, error="Rank 1 reported Remote process error")


def test_ranks_that_are_named_and_ranks_that_launched_nothing_are_counted() -> None:
    text = TEXT.partition("Warnings")[0] + (
        "#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  2 ranks have launched up to operation 7\n"
        "  2 ranks have not launched any operations\n"
        "  Rank 0 -- GPU 0 managed by process 4710 on node 10.0.0.1\n"
        "  Rank 3 -- GPU 3 managed by process 4713 on node 10.0.0.1\n"
        "  Communicator ranks have different Broadcast operation counts\n"
        "  3 ranks have launched up to operation 2\n"
        "  Rank 1 has not launched any operations -- [process information not found]\n"
    )
    assert from_text(text)[0].counts == ((0, 2), (1, 7), (2, 9), (3, 2))


def test_words_without_end_are_cut() -> None:
    many = "#0-0 (27a079b828ff1a75) MISMATCH\n" + 400 * (
        "  Communicator ranks have different AllReduce operation counts\n  4 ranks have launched up to operation 7\n"
    )
    rows = "".join(
        f"{group:5}  999999         1         4   999999        4      INIT      OK\n" for group in range(10, 9999)
    )
    found = from_text(TEXT + many * 400 + rows)
    assert len(found) <= 1024
    assert found[0].counts == tuple((rank, 7 * 16) for rank in range(4))
    with pytest.raises(ValueError, match="digits"):
        from_text(TEXT + many.replace("operation 7", f"operation {'7' * 5000}"))


def test_sets_of_which_no_rank_is_named_tell_nothing_of_any() -> None:
    text = TEXT.partition("Warnings")[0] + (
        "#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  2 ranks have launched up to operation 7\n"
        "  2 ranks have launched up to operation 8\n"
    )
    assert from_text(text)[0].counts == ()


def test_ranks_of_different_status_are_told() -> None:
    text = TEXT.partition("Warnings")[0] + (
        "#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different status\n"
        "  3 ranks have status RUNNING\n"
        "  Rank 1 has status INIT -- GPU 1 managed by process 4711 on node 10.0.0.1\n"
    )
    assert from_text(text)[0].initialising == (1,)


@pytest.mark.parametrize(
    "answer", [b"", b"\xff\xfe" * 900, b'{"communicators": 5}', b'{"communicators": [{"hash": 1}', b"[" * 100_000]
)
def test_nonsense_is_a_gap(answer: bytes, serve: Callable[..., Service]) -> None:
    found = asked(serve("2.28.9", lambda client: client.sendall(answer)))
    assert isinstance(found, Gap)
    assert found.reason is GapReason.FAILED


def test_a_service_that_hangs_is_a_gap_in_time(serve: Callable[..., Service]) -> None:
    services: list[Service] = []
    services.append(serve("2.28.9", lambda client: services[0].released.wait(20) and None))
    found = asked(services[0], within(0.3))
    assert isinstance(found, Gap)
    assert found.reason is GapReason.TIMED_OUT


def test_an_answer_without_end_is_a_gap(serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "ANSWER_BYTES_MAX", 1 << 20)

    def flood(client: socket.socket) -> None:
        client.settimeout(20)
        try:
            while True:
                client.sendall(bytes(1 << 18))
        except OSError:
            return

    found = asked(serve("2.28.9", flood))
    assert isinstance(found, Gap)
    assert found.reason is GapReason.TIMED_OUT


def test_somebody_else_on_the_port_is_a_gap_that_quotes_him() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(100)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        found = communicators("127.0.0.1", server.getsockname()[1], within())
        thread.join(20)
    assert isinstance(found, Gap)
    assert "HTTP/1.1" in found.detail


def test_nobody_there_is_a_gap_that_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = communicators("localhost", port, within())
    assert isinstance(found, Gap)
    assert "nobody answers" in found.detail


def test_a_port_that_only_the_server_listens_on_is_asked(serve: Callable[..., Service]) -> None:
    service = serve("2.28.9", lambda client: client.sendall(json.dumps(ANSWER).encode()))
    assert communicators("localhost", service.port, within(), [os.getpid()]) == (OF_JSON,)


SHARES = """
    import socket, sys, time
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("127.0.0.1", int(sys.argv[1])))
    server.listen()
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_port_of_another_job_or_of_several_is_not_asked(programs: Programs) -> None:
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("127.0.0.1", 0))
        port = ours.getsockname()[1]
        programs.python(SHARES, str(port))
        theirs = communicators("localhost", port, within(), [os.getpid()])
        ours.listen()
        shared = communicators("localhost", port, within(), [os.getpid()])
    assert isinstance(theirs, Gap)
    assert "somebody else" in theirs.detail
    assert isinstance(shared, Gap)
    assert "several jobs" in shared.detail


def test_another_machine_is_never_asked() -> None:
    found = communicators("192.0.2.1", 28028, within())
    assert isinstance(found, Gap)
    assert found.reason is GapReason.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, ("localhost", 28028)),
        ({"NCCL_RAS_ADDR": "127.0.0.1:5"}, ("127.0.0.1", 5)),
        ({"NCCL_RAS_ADDR": "[::1]:28029"}, ("::1", 28029)),
        ({"NCCL_RAS_ADDR": ":28030"}, ("localhost", 28030)),
        ({"NCCL_RAS_ADDR": "nonsense"}, None),
        ({"NCCL_RAS_ENABLE": "0"}, None),
    ],
)
def test_where_the_service_is(environ: dict[str, str], address: tuple[str, int] | None) -> None:
    assert ras_address(environ) == address


def test_a_version_that_dies_of_being_asked_is_known() -> None:
    assert is_safe_to_ask({"2.28.9", "2.27.5"})
    assert not is_safe_to_ask({"2.28.9", "2.27.3"})


def test_json_of_a_huge_job_keeps_its_numbers() -> None:
    one = ANSWER["communicators"][0] | {"ranks": [rank(number) for number in range(512)]}  # type: ignore[index]
    (found,) = from_json(json.dumps({"communicators": [one]}).encode())
    assert len(found.counts) == 512
