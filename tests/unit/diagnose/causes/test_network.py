"""Hubs, proxies, meeting places, addresses, interfaces, and messages that do not come."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.look import Frame, Listener, Lock, Look, OpenFile, Semaphore, Socket
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.diagnose import network
from firstlight.diagnose.scene import scene_of
from firstlight.testing.bundles import (
    FIRST_RANK,
    FRONT,
    NO_PTRACE,
    bundle,
    ended,
    engine,
    file,
    frame,
    front,
    host,
    interface,
    line,
    process,
    rank,
    socket,
)

MEETS = [
    "_create_c10d_store (torch/distributed/rendezvous.py:190)",
    "init_process_group (torch/distributed/distributed_c10d.py:1700)",
]
HUB = ["read (ssl.py:1166)", "get_hf_file_metadata (huggingface_hub/file_download.py:1470)"]
WEB = "18.155.173.9:443"


def _main(files=(), *, stack=(), fds=(), **more) -> Bundle:
    told = {"phase": Phase.CONFIG, **more}
    return bundle(process(FRONT, "python", stack=stack, syscall="poll(0x1)", fds=fds, files=files, ppid=1), **told)


@pytest.mark.parametrize(
    ("text", "host_", "port"),
    [
        ("10.0.0.1:29500", "10.0.0.1", 29500),
        ("tcp://node-a:1", "node-a", 1),
        ("[fd00::1]:29500", "fd00::1", 29500),
        ("fd00::1", "fd00::1", 0),
        ("::ffff:10.0.0.1", "10.0.0.1", 0),
        ("node-a", "node-a", 0),
        ("a b", "", 0),
        ("x" * 5000 + ":1:2", "", 0),
    ],
)
def test_addresses_as_users_write_them(text, host_, port):
    assert network.parted(text) == (host_, port)


@pytest.mark.parametrize(
    ("entry", "asked", "past"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", False),
        ("127.0.0.0/8", "127.0.0.1", True),
        (".corp.net", "a.corp.net", True),
        ("corp.net", "badcorp.net", False),
        ("*", "0.0.0.0", True),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_what_no_proxy_keeps_from_the_proxy(entry, asked, past):
    assert network.bypassed(asked, [entry]) is past


def test_a_hub_that_does_not_answer_the_main_thread_decides(judge):
    silent = socket("10.0.0.2:4", WEB, state="SYN_SENT", fd=9)
    assert judge(_main([silent], fds=(9,)), "hub_network").word == "established"
    assert judge(_main([silent], stack=HUB), "hub_network").word == "established"
    assert judge(_main([silent]), "hub_network").word == "supported"
    assert judge(_main([silent], stack=["load (app.py:3)"]), "hub_network").finding is None


def test_telemetry_that_idles_beside_the_main_thread_is_no_hub(judge):
    idle = socket("10.0.0.2:4", WEB, fd=9)
    assert judge(_main([idle], stack=["load (app.py:3)"]), "hub_network").finding is None


def test_weights_that_are_read_exclude_the_hub(judge):
    silent = socket("10.0.0.2:4", WEB, state="SYN_SENT", fd=9)
    weights = file("/m/model-00001-of-00002.safetensors")
    made = _main([silent, weights], phase=Phase.WEIGHTS)
    first, last = made.looks
    grown = replace(
        last, processes=tuple(replace(one, sample=replace(one.sample, read_bytes=90 << 30)) for one in last.processes)
    )
    assert judge(replace(made, looks=(first, grown)), "hub_network").word == "excluded"


def test_a_connection_made_between_the_looks_is_not_yet_unanswered(judge):
    silent = socket("10.0.0.2:4", WEB, state="SYN_SENT", fd=9)
    made = _main([silent], fds=(9,))
    first = replace(made.looks[0], processes=tuple(replace(one, files=()) for one in made.looks[0].processes))
    assert judge(replace(made, looks=(first, made.looks[1])), "hub_network").finding is None


NOT_FOUND = Gap(what="addresses", reason=GapReason.FAILED, detail="Name or service not known")
LATE = Gap(what="addresses", reason=GapReason.TIMED_OUT)


def _named(addresses, *, stack=(), log=()) -> Bundle:
    return bundle(
        front(), rank(0, stack=stack), host=host(resolved=(Resolved(name="head-0", addresses=addresses),)), log=log
    )


def test_a_name_that_does_not_resolve_needs_somebody_who_asks(judge):
    asks = ["getaddrinfo (socket.py:950)", *MEETS]
    assert judge(_named(NOT_FOUND, stack=asks), "unresolvable_host").word == "established"
    told = [line("[c10d] addresses of (head-0, 29500) cannot be retrieved (gai error: -2)")]
    assert judge(_named(NOT_FOUND, log=told), "unresolvable_host").word == "established"
    assert judge(_named(NOT_FOUND), "unresolvable_host").finding is None
    assert judge(_named(("10.0.0.9",), stack=asks, log=told), "unresolvable_host").finding is None
    assert judge(_named(LATE, stack=asks), "unresolvable_host").finding is None


def test_a_meeting_place_without_an_address_is_foreseen_surely(judge):
    made = replace(_named(NOT_FOUND), environment=(("MASTER_ADDR", "head-0"),))
    assert judge(made, "unresolvable_host", before=True).word == "established"
    assert judge(_named(NOT_FOUND), "unresolvable_host", before=True).word == "supported"


def _proxied(no_proxy: str, *, listens: bool = True, log=(), files=(), host_: str = "127.0.0.1") -> Bundle:
    listeners = [Listener(host=host_, port=30000, pid=FRONT)] if listens else []
    return _main(
        files,
        phase=Phase.WARMUP,
        listeners=listeners,
        environment={"http_proxy": "http://proxy.corp:3128", "no_proxy": no_proxy},
        options={"host": host_, "port": "30000"},
        log=log,
    )


def test_a_proxy_is_blamed_for_what_it_was_seen_to_take(judge):
    refused = [line("Initialization failed. warmup error: res=<Response [502]>", level="ERROR")]
    to_proxy = [socket("10.0.0.2:9", "10.9.9.9:3128")]
    assert judge(_proxied("", log=refused), "http_proxy").word == "established"
    assert judge(_proxied("", files=to_proxy), "http_proxy").word == "established"
    assert judge(_proxied("", log=refused, listens=False), "http_proxy").word == "supported"
    assert judge(_proxied(""), "http_proxy").finding is None
    probed = [line('INFO:     10.0.0.9:4711 - "GET /health HTTP/1.1" 503 Service Unavailable')]
    assert judge(_proxied("", log=probed), "http_proxy").finding is None
    assert judge(_proxied("127.0.0.1", log=refused, files=to_proxy), "http_proxy").word == "excluded"
    assert judge(_proxied("127.0.0.1", log=refused, host_="0.0.0.0"), "http_proxy").word == "established"


def test_who_sleeps_before_it_asks_itself_again_was_not_answered(judge):
    def warming_up(entry: str, syscall: str) -> Bundle:
        seen = _proxied(entry, host_="0.0.0.0")
        asks = [frame("_wait_and_warmup (sglang/srt/entrypoints/http_server.py:690)")]
        return replace(seen, looks=tuple(_standing(look, asks, syscall) for look in seen.looks))

    def _standing(look: Look, stack: list[Frame], syscall: str) -> Look:
        one = look.processes[0]
        threads = (replace(one.threads[0], stack=tuple(stack), syscall=syscall), *one.threads[1:])
        return replace(look, processes=(replace(one, threads=threads), *look.processes[1:]))

    sleeps, waits = "clock_nanosleep(0x1, 0x1, 0x7f21c0, 0x0)", "recvfrom(0x9, 0x7f3a10, 0x400)"
    assert judge(warming_up("127.0.0.1", sleeps), "http_proxy").word == "supported"
    assert judge(warming_up("127.0.0.1", waits), "http_proxy").finding is None
    assert judge(warming_up("localhost,127.0.0.1,0.0.0.0", sleeps), "http_proxy").word == "excluded"


def test_a_proxy_is_foreseen(judge):
    assert judge(_proxied(""), "http_proxy", before=True).word == "supported"
    assert judge(_proxied("localhost,127.0.0.1"), "http_proxy", before=True).finding is None


def _knocking(peer: str, *, state: str = "SYN_SENT", stack=(), **more) -> Bundle:
    told = {"phase": Phase.RENDEZVOUS, **more}
    return bundle(front(), rank(0, stack=stack, files=[socket("10.0.0.2:7", peer, state=state)]), **told)


TOLD = {"MASTER_ADDR": "10.5.5.5", "MASTER_PORT": "29500"}


def test_a_meeting_place_that_does_not_answer_decides(judge):
    assert judge(_knocking("10.5.5.5:29500", environment=TOLD), "rendezvous_unreachable").word == "established"
    assert judge(_knocking("10.5.5.5:1", stack=MEETS), "rendezvous_unreachable").word == "established"
    assert judge(_knocking("10.5.5.5:1"), "rendezvous_unreachable").finding is None
    assert judge(_knocking("10.5.5.5:443", stack=MEETS), "rendezvous_unreachable").finding is None
    assert (
        judge(_knocking("10.5.5.5:29500", state="ESTABLISHED", environment=TOLD), "rendezvous_unreachable").finding
        is None
    )


def test_loopback_is_no_meeting_place_for_several_nodes(judge):
    option = {"dist-init-addr": "127.0.0.1:20000", "nnodes": "2"}
    made = bundle(front(), rank(0, stack=MEETS), options=option)
    assert judge(made, "rendezvous_unreachable").word == "established"
    assert judge(bundle(front(), rank(0), options=option), "rendezvous_unreachable").finding is None
    assert judge(bundle(options=option), "rendezvous_unreachable", before=True).word == "established"
    variable = bundle(front(), rank(0, stack=MEETS), nodes=2, environment={"MASTER_ADDR": "127.0.0.1"})
    assert judge(variable, "rendezvous_unreachable").word == "supported"
    one_node = bundle(front(), rank(0, stack=MEETS), environment={"MASTER_ADDR": "127.0.0.1"})
    assert judge(one_node, "rendezvous_unreachable").finding is None


LAN = (
    interface("lo", "127.0.0.1", kind="loopback"),
    interface("eth0", "10.0.0.2"),
    interface("tun0", "10.8.0.6", kind="tunnel"),
)


def test_an_interface_that_the_log_misses_decides(judge):
    told = {"host": host(interfaces=LAN), "environment": {"GLOO_SOCKET_IFNAME": "ib0"}}
    missed = [line("RuntimeError: Unable to find address for: ib0", level="ERROR")]
    assert judge(bundle(front(), log=missed, **told), "wrong_interface").word == "established"
    assert judge(bundle(front(), log=missed, host=host(interfaces=LAN)), "wrong_interface").finding is None


def test_a_name_that_means_loopback_is_no_name_for_several_nodes(judge):
    name = host(resolved=(Resolved(name="node-a", addresses=("127.0.1.1",)),))
    assert judge(bundle(front(), rank(0, stack=MEETS), host=name, nodes=2), "wrong_interface").word == "supported"
    assert judge(bundle(front(), rank(0, stack=MEETS), host=name), "wrong_interface").finding is None


def test_a_silent_web_connection_that_is_waited_for_alone_supports(judge):
    silent = socket("10.0.0.2:4", WEB, fd=9)
    assert judge(_main([silent], fds=(9,)), "hub_network").word == "supported"
    assert judge(_main([silent], fds=(9, 10)), "hub_network").finding is None


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", False),
        ("NCCL_SOCKET_IFNAME", "=eth", True),
        ("NCCL_SOCKET_IFNAME", "ib0", True),
        ("NCCL_SOCKET_IFNAME", "^docker", False),
        ("NCCL_SOCKET_IFNAME", "^lo,eth,tun", True),
        ("GLOO_SOCKET_IFNAME", "eth", True),
        ("GLOO_SOCKET_IFNAME", "bond0,eth0", False),
    ],
)
def test_interfaces_that_a_variable_names(judge, name, value, missing):
    told = {"host": host(interfaces=LAN), "environment": {name: value}}
    assert (judge(bundle(**told), "wrong_interface", before=True).word == "established") is missing
    joins = bundle(front(), rank(0, stack=MEETS), **told)
    assert (judge(joins, "wrong_interface").word == "established") is missing
    assert judge(bundle(front(), rank(0), **told), "wrong_interface").finding is None


def test_a_vpn_is_blamed_where_the_log_complains_about_its_address(judge):
    told = line("The server socket on [::ffff:10.8.0.6]:4000 has timed out, will retry.", level="WARNING")
    made = {"host": host(interfaces=LAN), "log": [told]}
    assert judge(bundle(front(), rank(0, stack=MEETS), **made), "wrong_interface").word == "established"
    assert judge(bundle(front(), rank(0), **made), "wrong_interface").finding is None
    bound = rank(0, stack=MEETS, files=[socket("10.8.0.6:4000", state="LISTEN")])
    assert judge(bundle(front(), bound, host=host(interfaces=LAN)), "wrong_interface").word == "supported"
    assert judge(bundle(front(), rank(0, stack=MEETS), host=host(interfaces=LAN)), "wrong_interface").finding is None


def _meeting(listens: str, told: str) -> Bundle:
    head = engine(files=[socket(listens, state="LISTEN", fd=40)])
    return bundle(front(), head, options={"master-addr": told, "master-port": "29501"}, nodes=2)


def test_families_that_differ_support(judge):
    assert judge(_meeting("0.0.0.0:29501", "fd00::5"), "ipv6").word == "supported"
    assert judge(_meeting("10.0.0.1:29501", "10.0.0.1"), "ipv6").finding is None
    assert judge(_meeting("fd00::5:29501", "fd00::5"), "ipv6").finding is None
    assert judge(_meeting("10.0.0.1:8000", "fd00::5"), "ipv6").word == "supported"


HUB_LOCK = "/hub/.locks/models--a--b/1f.lock"


def test_a_download_lock_is_told_with_its_holder(judge):
    stack = ["acquire (filelock/_api.py:340)", "hf_hub_download (huggingface_hub/file_download.py:900)"]
    waits = rank(0, stack=stack, files=[file(HUB_LOCK)], syscall="clock_nanosleep(0x1, 0x0)")
    held = judge(bundle(front(), waits, locks=[Lock(kind="flock", path=HUB_LOCK, holder=77)]), "download_lock")
    assert held.word == "established"
    assert held.finding.pids[0] == 77
    assert judge(bundle(front(), waits), "download_lock").word == "supported"
    own = Lock(kind="flock", path=HUB_LOCK, holder=FIRST_RANK)
    assert judge(bundle(front(), waits, locks=[own]), "download_lock").title == "a download waits for a lock"
    unopened = rank(0, stack=stack, syscall="clock_nanosleep(0x1, 0x0)")
    others = [Lock(kind="flock", path=f"/hub/.locks/models--a--b/{n}f.lock", holder=77) for n in range(2)]
    assert judge(bundle(front(), unopened, locks=others[:1]), "download_lock").word == "established"
    assert judge(bundle(front(), unopened, locks=others), "download_lock").word == "supported"


def _full(*, unread: int, reader_moves: int = 0, blocks: bool = True) -> Bundle:
    sender = process(
        900, "sender", syscall="sendto(0x5)" if blocks else "futex(0x1)", fds=(5,),
        files=[socket("127.0.0.1:1", "127.0.0.1:2", fd=5, unsent=200_000, peers=(901,))],
    )  # fmt: skip
    reader = process(901, "reader", stack=["sleep (app.py:3)"], syscall="clock_nanosleep(0x1)",
                     files=[socket("127.0.0.1:2", "127.0.0.1:1", fd=6, unread=unread, peers=(900,))])  # fmt: skip
    made = bundle(sender, reader)
    if not reader_moves:
        return made
    first, last = made.looks
    moved = tuple(
        replace(one, sample=replace(one.sample, read_bytes=one.sample.read_bytes + reader_moves))
        if one.process.id.pid == 901
        else one
        for one in last.processes
    )
    return replace(made, looks=(first, replace(last, processes=moved)))


def test_a_full_socket_is_the_readers_fault(judge):
    said = judge(_full(unread=500_000), "socket_full")
    assert said.word == "established"
    assert said.finding.pids[0] == 901
    assert judge(_full(unread=0), "socket_full").word == "supported"
    assert judge(_full(unread=500_000, blocks=False), "socket_full").finding is None


def test_a_unix_socket_is_known_by_its_path(judge):
    def end(fd: int, host_: str, peer: str, unread: int, peers: tuple[int, ...]) -> OpenFile:
        record = Socket(family="unix", state="ESTABLISHED", host=host_, peer_host=peer, unread=unread)
        return OpenFile(fd=fd, kind="socket", target=f"socket:[{fd}]", access="rw", peers=peers, socket=record)

    sender = process(900, "a", syscall="sendmsg(0x5)", fds=(5,), files=[end(5, "", "/tmp/q", 0, (901,))])
    reader = process(901, "b", syscall="futex(0x1)", files=[end(6, "/tmp/q", "", 90_000, (900,))])
    assert judge(bundle(sender, reader), "socket_full").word == "established"


ZMQ = ["recv (zmq/sugar/socket.py:1120)", "ask (app/client.py:10)"]


def _asks(peer_stack: list[str], peer_call: str, *, peer: bool = True) -> Bundle:
    record = Socket(family="unix", state="ESTABLISHED", peer_host="/tmp/ipc_1")
    link = OpenFile(fd=7, kind="socket", target="socket:[7]", peers=(FIRST_RANK,), socket=record)
    return bundle(
        front(stack=ZMQ, syscall="poll(0x1)", files=[link]),
        [rank(0, stack=peer_stack, syscall=peer_call)] if peer else [],
    )


def test_a_message_that_does_not_come_points_to_whoever_should_send_it(judge):
    said = judge(_asks(["handle (app/server.py:3)"], "clock_nanosleep(0x1)"), "zmq_no_reply")
    assert said.word == "supported"
    assert said.finding.pids[0] == FIRST_RANK
    assert judge(_asks(["all_reduce (vllm/pynccl.py:1)"], "futex(0x1)"), "zmq_no_reply").finding is None


def test_without_stacks_it_is_not_examined(judge):
    made = bundle(front(stack=NO_PTRACE), rank(0, stack=NO_PTRACE))
    assert judge(made, "zmq_no_reply").word == "not examined"


def test_a_semaphore_that_nobody_is_left_to_post_decides(judge):
    def made(mapped: tuple[int, ...], value: int = 0) -> Bundle:
        posted = Semaphore(path="/dev/shm/sem.q", value=value, waiting=(FIRST_RANK,), mapped_by=mapped)
        return bundle(front(), rank(0), rank(1), semaphores=[posted])

    alone = judge(made((FIRST_RANK,)), "semaphore_never_posted")
    assert alone.word == "established"
    assert "nobody else has" in alone.title
    other = judge(made((FIRST_RANK, FIRST_RANK + 1)), "semaphore_never_posted")
    assert other.word == "supported"
    assert other.finding.pids[0] == FIRST_RANK + 1
    assert judge(made((FIRST_RANK,), value=2), "semaphore_never_posted").finding is None


def test_an_idle_pool_waits_for_semaphores_in_good_health(judge):
    idle = ["__enter__ (multiprocessing/synchronize.py:95)", "get (multiprocessing/queues.py:102)"]
    turn = Semaphore(path="/dev/shm/sem.mp-1", value=0, waiting=(FIRST_RANK,), mapped_by=(FIRST_RANK, FIRST_RANK + 1))
    made = bundle(front(), rank(0, stack=idle), rank(1), semaphores=[turn])
    assert judge(made, "semaphore_never_posted").finding is None


def test_an_unseen_table_of_semaphores_is_a_gap(judge):
    made = bundle(front(), rank(0), semaphores=Gap(what="semaphores", reason=GapReason.TIMED_OUT))
    assert judge(made, "semaphore_never_posted").word == "not examined"


def test_where_ranks_meet_is_told_by_an_option_before_a_variable():
    made = bundle(options={"dist-init-addr": "10.1.1.1:20000"}, environment={"MASTER_ADDR": "127.0.0.1"})
    assert [one.host for one in network.meetings(scene_of(made))] == ["10.1.1.1"]


def test_an_end_before_the_question_is_told_of_the_death(judge):
    alone = bundle(front(stack=ZMQ, syscall="poll(0x1)"), exits=(ended(rank(0), signal=9),))
    assert judge(alone, "zmq_no_reply").word == "supported"
