"""The same causes in other forms than the first reports had, each with a stall that looks alike and is none."""

import pytest
from msgspec.structs import replace

from firstlight.core.gap import Gap
from firstlight.core.look import Listener, Pressure
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.diagnose.failures import Kind, refusal
from firstlight.testing.bundles import (
    NO_PTRACE,
    Made,
    Moves,
    bundle,
    ended,
    engine,
    file,
    front,
    helper,
    host,
    interface,
    line,
    ordinary_facts,
    process,
    rank,
    ranks,
    socket,
    thread,
)

READS = "_fixup_main_from_path (multiprocessing/spawn.py:297)"
SCRIPT = ("main (/srv/quantise.py:12)", "<module> (/srv/run.py:41)")
IMPORTED = ("load (/srv/data.py:3)", "<module> (/srv/data.py:90)")
STORE = ("_create_c10d_store (torch/distributed/rendezvous.py:198)", "load (/srv/loader.py:9)")
FORWARD = ("forward (sglang/srt/models/llama.py:300)", "event_loop (sglang/srt/disaggregation/prefill.py:260)")
TURNS = ("event_loop (sglang/srt/disaggregation/prefill.py:260)", "run (sglang/srt/managers/scheduler.py:3100)")
SIX = host(interfaces=(interface("lo", "::1", kind="loopback"), interface("eth0", "fd00:6::a", "fe80::1")))
BOTH = host(
    interfaces=(interface("lo", "127.0.0.1", "::1", kind="loopback"), interface("eth0", "10.0.0.4", "fd00:6::a"))
)
REDUCES = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "load (/srv/loader.py:9)")
FAILED = "[c10d] The client socket has failed to connect to"


def _child(*stack: str) -> Made:
    return process(4050, "python", stack=(*stack, READS))


@pytest.mark.parametrize("stack", [SCRIPT, SCRIPT[1:]], ids=["in a function", "at its top"])
def test_a_child_that_works_at_the_top_of_the_script_runs_it_again(judge, stack):
    assert judge(bundle(front(), _child(*stack)), "missing_main_guard").word == "supported"


@pytest.mark.parametrize(
    "made",
    [
        bundle(front(), _child(*IMPORTED, "_load (<frozen importlib._bootstrap>:241)", SCRIPT[1])),
        bundle(front(), _child(*IMPORTED, SCRIPT[1])),
        bundle(front(), _child()),
        bundle(front(), process(4050, "python", stack=SCRIPT)),
    ],
    ids=["imports", "imports, its frames not seen", "has not begun", "the script itself"],
)
def test_a_child_may_read_the_script_for_its_imports(judge, made):
    assert judge(made, "missing_main_guard").word == "not seen"


def _traceback(*frames: str) -> list[object]:
    told = [f'  File "{one.partition("|")[0]}", line 9, in {one.partition("|")[2]}' for one in frames]
    texts = ["Traceback (most recent call last):", *told, "ValueError: the folder is taken"]
    return [line(text, ago_s=9 - at / 9, level="") for at, text in enumerate(texts)]


def test_a_child_may_end_by_running_the_script_again(judge):
    reads = "/usr/lib/python3.11/multiprocessing/spawn.py|_fixup_main_from_path"
    gone = [ended(engine(), code=1, ago_s=5)]
    again = _traceback(reads, "/srv/run.py|<module>", "/srv/quantise.py|save")
    assert judge(bundle(front(), log=again, exits=gone), "missing_main_guard").word == "supported"
    imports = _traceback(reads, "/srv/run.py|<module>", "/srv/data.py|<module>")
    assert judge(bundle(front(), log=imports, exits=gone), "missing_main_guard").word == "not seen"
    first = _traceback("/srv/run.py|<module>", "/srv/quantise.py|save")
    assert judge(bundle(front(), log=first, exits=gone), "missing_main_guard").word == "not seen"


def _joins(size: int, *more: object, address: str = "127.0.0.1", **whole: object):
    told = f"world_size={size} rank=0 local_rank=0 distributed_init_method=tcp://{address}:29501 backend=nccl"
    return bundle(front(), ranks(2, stack=STORE), log=[line(told), *more], **{"phase": Phase.RENDEZVOUS, **whole})


def test_ranks_say_that_they_meet_those_of_other_machines_at_loopback(judge):
    assert judge(_joins(4, nodes=2, ranks=2), "rendezvous_unreachable").word == "established"
    assert "127.0.0.1:29501" in judge(_joins(4, nodes=2, ranks=2), "rendezvous_unreachable").title


@pytest.mark.parametrize(
    "made",
    [
        _joins(2, nodes=2, ranks=2),
        _joins(4, nodes=2, ranks=4),
        _joins(4, nodes=1, ranks=2),
        _joins(4, nodes=2, ranks=2, address="10.0.0.9"),
    ],
    ids=["a group of this machine", "not all are there yet", "another server's half", "an address that leads there"],
)
def test_a_group_of_one_machine_meets_at_loopback(judge, made):
    assert judge(made, "rendezvous_unreachable").word != "established"


def _refused(text: str, stack: tuple[str, ...] = STORE, **more: object):
    return bundle(front(), ranks(2, stack=stack), log=[line(text)], **{"phase": Phase.RENDEZVOUS, **more})


def test_an_address_refuses_whoever_stands_where_ranks_meet(judge):
    text = f"{FAILED} [node-0]:29501 (errno: 111 - Connection refused)."
    assert judge(_refused(text), "rendezvous_unreachable").word == "supported"
    assert judge(_refused(text, SCRIPT), "rendezvous_unreachable").finding is None
    listens = [Listener(host="0.0.0.0", port=29501, pid=4100)]
    assert judge(_refused(text, listeners=listens), "rendezvous_unreachable").finding is None
    assert judge(_refused(text, phase=Phase.SERVING), "rendezvous_unreachable").finding is None


@pytest.mark.parametrize(
    ("address", "there"),
    [("127.0.0.1:30281", SIX), ("10.6.0.4:5000", SIX), ("[fd00:6::b]:5000", host())],
    ids=["loopback", "IPv4", "IPv6"],
)
def test_no_way_leads_to_an_address_of_a_family_that_the_machine_lacks(judge, address, there):
    text = f"{FAILED} {address} (errno: 101 - Network is unreachable)."
    assert judge(_refused(text, host=there), "ipv6").word == "supported"
    assert judge(_refused(text, host=BOTH), "ipv6").finding is None
    refused = f"{FAILED} {address} (errno: 111 - Connection refused)."
    assert judge(_refused(refused, host=there), "ipv6").finding is None


def test_ranks_meet_at_an_address_of_a_family_that_the_machine_lacks(judge):
    told = {"options": {"dist-init-addr": "10.6.0.4:5000"}, "nodes": 2}
    assert judge(bundle(front(), ranks(2, stack=STORE), host=SIX, **told), "ipv6").word == "supported"
    assert judge(bundle(front(), ranks(2, stack=STORE), host=BOTH, **told), "ipv6").finding is None
    assert judge(bundle(front(), ranks(2, stack=SCRIPT), host=SIX, **told), "ipv6").finding is None


def _prefill(stack: tuple[str, ...], *files: object, role: str = "prefill", asks: bool = True):
    warms = thread(
        ["getresponse (http/client.py:1428)", "_wait_and_warmup (sglang/srt/entrypoints/http_server.py:810)"]
    )
    one = front(threads=[warms] if asks else [], files=files)
    return bundle(one, ranks(2, stack=stack), options={"disaggregation-mode": role}, phase=Phase.WARMUP)


def test_a_prefill_server_alone_waits_for_itself(judge):
    assert judge(_prefill(TURNS), "pd_handshake").word == "supported"
    met = socket("10.0.0.4:8998", "10.0.0.5:41000", fd=70)
    for made in (
        _prefill(FORWARD), _prefill(TURNS, asks=False), _prefill(TURNS, role="null"), _prefill(TURNS, met),
    ):  # fmt: skip
        assert judge(made, "pd_handshake").finding is None


def _all_end(first: int | None, *, code: int = 1, ago_s: float = 3):
    how = {"signal": first} if first else {"code": code}
    gone = [ended(engine(), ago_s=ago_s, **how), ended(front(), signal=15, ago_s=2)]
    return bundle(helper(ppid=1), exits=gone, phase=Phase.WEIGHTS, motion="moving")


def test_whoever_is_asked_to_end_may_ask_its_children_first(judge):
    assert judge(_all_end(15), "probe_kill").word == "established"
    assert judge(_all_end(None), "probe_kill").finding is None
    assert judge(_all_end(9), "probe_kill").finding is None
    assert judge(_all_end(15, ago_s=60), "probe_kill").finding is None


def test_who_asked_a_server_to_end_is_not_known_if_one_of_its_own_failed(judge):
    gone = [ended(front(), signal=15, ago_s=3), ended(engine(), code=1, ago_s=2.9)]
    judged = judge(bundle(helper(ppid=1), exits=gone, phase=Phase.WEIGHTS, motion="moving"), "probe_kill")
    assert (judged.word, judged.finding.title) == ("supported", "it was asked to end while it was still on its way")


@pytest.mark.parametrize("text", ["NCCL WARN Call to ibv_reg_mr failed", "UCX ERROR uct_md_mem_reg() failed"])
def test_memory_is_not_registered_where_little_may_be_locked(judge, text):
    def told(words: str, **facts: object):
        return bundle(front(), rank(0, facts=ordinary_facts(**facts)), log=[line(words)])

    assert judge(told(text, memlock=65_536, capabilities=()), "ulimit").word == "supported"
    assert judge(told(text, memlock=-1, capabilities=()), "ulimit").finding is None
    assert judge(told(text, memlock=65_536, capabilities=("ipc_lock",)), "ulimit").finding is None
    assert judge(told(f"{text} with error Bad address", memlock=65_536, capabilities=()), "ulimit").finding is None


def _pressed(moves: Moves, kernel: tuple[str, ...] = (), **pressure: object):
    one = rank(0, state="D", kernel=kernel, moves=moves, stack=SCRIPT)
    made = bundle(front(), one, phase=Phase.WEIGHTS)
    now = Pressure(**pressure)
    then = replace(now, swapped_in=0, swapped_out=0) if "swapped_in" in pressure else now
    return replace(
        made, looks=tuple(replace(look, pressure=one) for look, one in zip(made.looks, (then, now), strict=True))
    )


SEARCHES = ("shrink_lruvec", "try_to_free_pages", "__alloc_pages_slowpath")
UNTOLD = Gap(what="/proc/pressure", reason=GapReason.NOT_SUPPORTED)


def test_a_kernel_that_does_not_tell_of_pressure_may_swap_all_the_same(judge):
    swaps = {"swapped_in": 90_000, "swapped_out": 90_000}
    assert judge(_pressed(Moves(), memory_some=UNTOLD, **swaps), "memory_pressure").word == "supported"
    for made in (
        _pressed(Moves(), memory_some=UNTOLD, swapped_in=2000, swapped_out=2000),
        _pressed(Moves(), memory_some=0.2, **swaps),
        _pressed(Moves(), SEARCHES, memory_some=UNTOLD),
    ):
        assert judge(made, "memory_pressure").word not in {"supported", "established"}


def _held(filesystem: str, *, state: str = "D", before: str = "D", io_some: float = 60.0, **more: object):
    shard = file("/models/model-00001-of-00030.safetensors", filesystem=filesystem)
    unseen = {"kernel": UNTOLD, "wchan": UNTOLD, "stack": NO_PTRACE, "syscall": NO_PTRACE}
    made = bundle(front(), rank(0, state=state, files=[shard], **{**unseen, **more}), phase=Phase.WEIGHTS)
    made = replace(made, looks=tuple(replace(look, pressure=Pressure(io_some=io_some)) for look in made.looks))
    first = made.looks[0]
    threads = [[replace(one, state=before) for one in there.threads] for there in first.processes]
    there = tuple(replace(one, threads=tuple(own)) for one, own in zip(first.processes, threads, strict=True))
    return replace(made, looks=(replace(first, processes=there), *made.looks[1:]))


def test_whoever_is_held_for_slow_storage_may_be_held_unseen(judge):
    assert judge(_held("nfs4"), "slow_storage").word == "supported"
    assert judge(_held("ext4"), "slow_storage").word not in {"supported", "established"}
    assert judge(_held("nfs4", before="R"), "slow_storage").word not in {"supported", "established"}
    assert judge(_held("nfs4", io_some=1.0), "slow_storage").word not in {"supported", "established"}
    driver = {"kernel": ("os_acquire_rwlock_write", "nvidia_ioctl")}
    assert judge(_held("nfs4", **driver), "slow_storage").word not in {"supported", "established"}


def _reads(read_mib: int, io_some: float, **more: object):
    shard = file("/models/model-00001-of-00030.safetensors")
    one = rank(0, stack=STORE, files=[shard], moves=Moves(read_bytes=read_mib << 20), **more)
    made = bundle(front(), one, phase=Phase.WEIGHTS)
    return replace(made, looks=tuple(replace(look, pressure=Pressure(io_some=io_some)) for look in made.looks))


def test_whoever_reads_slowly_need_not_be_caught_waiting(judge):
    assert judge(_reads(200, 80.0), "slow_storage").word == "supported"
    for made in (_reads(200, 1.0), _reads(0, 80.0), _reads(60_000, 80.0), _reads(200, 80.0, cpu=1.0)):
        assert judge(made, "slow_storage").finding is None


ASKS = ("read (urllib3/response.py:900)", "get (requests/api.py:73)")
IN_HUB = "hf_hub_download (huggingface_hub/file_download.py:1100)"


def test_a_web_client_in_the_hubs_code_asks_all_the_while(judge):
    def asks(*stack: str, **more: object):
        return bundle(front(), engine(stack=stack), **{"phase": Phase.CONFIG, **more})

    assert judge(asks(*ASKS, IN_HUB), "hub_network").word == "supported"
    for made in (asks(IN_HUB), asks(*ASKS), asks(*ASKS, IN_HUB, phase=Phase.SERVING)):
        assert judge(made, "hub_network").finding is None


def _warms_up(peer: str, **variables: str):
    own = "_execute_server_warmup (sglang/srt/entrypoints/http_server.py:1434)"
    asks = thread([*ASKS, own], fds=(33,), syscall="recvfrom(0x21, 0x7f3e00, 0x2000)")
    one = front(threads=[asks], files=[socket("10.0.0.4:47100", peer, fd=33)])
    listens = [Listener(host="0.0.0.0", port=8000, pid=4000)]
    return bundle(one, rank(0, stack=SCRIPT), listeners=listens, environment=variables, phase=Phase.WARMUP)


def test_a_server_waits_for_itself_at_another_machine(judge):
    assert judge(_warms_up("10.9.9.9:3128", http_proxy="http://proxy.example:9000"), "http_proxy").word == "supported"
    for made in (
        _warms_up("127.0.0.1:8000", http_proxy="http://proxy.example:9000"),
        _warms_up("10.9.9.9:3128"),
        _warms_up("10.9.9.9:3128", http_proxy="http://proxy.example:9000", no_proxy="127.0.0.1,localhost"),
    ):
        assert judge(made, "http_proxy").word not in {"supported", "established"}


def _unsent(phase: Phase, stack: object = REDUCES, **more: object):
    far = socket("10.0.0.4:40000", "10.0.0.9:41000", fd=60, unsent=4096)
    return bundle(front(), rank(0, stack=stack, files=[far]), phase=phase, nodes=2, **more)


def test_a_connection_may_be_dropped_while_weights_are_loaded(judge):
    assert judge(_unsent(Phase.GRAPH_CAPTURE), "idle_connection_drop").word == "supported"
    assert judge(_unsent(Phase.SERVING, NO_PTRACE), "idle_connection_drop").word == "supported"
    assert judge(_unsent(Phase.COMM_INIT), "idle_connection_drop").finding is None
    assert judge(_unsent(Phase.GRAPH_CAPTURE, SCRIPT), "idle_connection_drop").finding is None


def _unseen(number: int = 0):
    return rank(number, stack=NO_PTRACE, syscall=NO_PTRACE, native=NO_PTRACE)


@pytest.mark.parametrize("phase", [Phase.RENDEZVOUS, Phase.WEIGHTS])
def test_ranks_that_meet_by_the_log_alone(judge, phase):
    word = "supported" if phase is Phase.RENDEZVOUS else "not seen"
    there = {"phase": phase, "nodes": 2, "options": {"dist-init-addr": "127.0.0.1:5000"}}
    assert judge(bundle(front(), _unseen(), **there), "rendezvous_unreachable").word in {word, "not examined"}
    assert (judge(bundle(front(), _unseen(), **there), "rendezvous_unreachable").word == "supported") is (
        phase is Phase.RENDEZVOUS
    )
    lo = {"environment": {"GLOO_SOCKET_IFNAME": "lo"}, "host": BOTH}
    said = judge(bundle(front(), _unseen(), **{**there, **lo}), "wrong_interface").word
    assert (said == "supported") is (phase is Phase.RENDEZVOUS)


def _resolves(*stack: str, before: tuple[str, ...] | None = None, **more: object):
    made = bundle(front(), rank(0, stack=stack), **{"phase": Phase.RENDEZVOUS, **more})
    if before is None:
        return made
    first = bundle(front(), rank(0, stack=before), **{"phase": Phase.RENDEZVOUS, **more})
    return replace(made, looks=(first.looks[0], made.looks[-1]))


RESOLVER = ("getaddrinfo (socket.py:976)", "create_connection (socket.py:850)", "load (/srv/loader.py:9)")


def test_a_name_is_asked_for_all_the_while(judge):
    assert judge(_resolves(*RESOLVER), "unresolvable_host").word == "supported"
    assert judge(_resolves(*RESOLVER, before=RESOLVER[1:]), "unresolvable_host").finding is None
    assert judge(_resolves(*RESOLVER[1:]), "unresolvable_host").finding is None


def test_a_name_that_is_told_nowhere_else_does_not_resolve(judge):
    text = "[c10d] cannot resolve host: node-0 (gai error: -2 - Name or service not known)"
    assert judge(_resolves(*STORE, log=[line(text)]), "unresolvable_host").word == "supported"
    assert judge(_resolves(*SCRIPT, log=[line(text)]), "unresolvable_host").finding is None
    six = "[c10d] The IPv6 network addresses of (node-0, 5000) cannot be retrieved (Name or service not known)"
    assert judge(_resolves(*STORE, log=[line(six)]), "unresolvable_host").finding is None


def _queues(unsent: int, unread: int, **reader: object):
    sends = socket("127.0.0.1:40000", "127.0.0.1:5557", fd=60, unsent=unsent, peers=(4100,))
    reads = socket("127.0.0.1:5557", "127.0.0.1:40000", fd=61, unread=unread, peers=(4000,))
    one = front(files=[sends], syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)")
    return bundle(one, rank(0, stack=SCRIPT, files=[reads], **reader))


def test_a_socket_may_be_full_whose_sender_polls(judge):
    assert judge(_queues(90_000, 200_000), "socket_full").word == "supported"
    for made in (
        _queues(0, 200_000),
        _queues(90_000, 0),
        _queues(90_000, 200_000, moves=Moves(read_bytes=50 << 20)),
    ):
        assert judge(made, "socket_full").word not in {"supported", "established"}


NIXL = {"kv-transfer-config": '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'}
SHAKES = "vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py"


def _introduces(function: str, *, main: bool = False, **more: object):
    stack = (f"{function} ({SHAKES}:900)", "load (/srv/loader.py:9)")
    one = rank(0, stack=stack) if main else rank(0, stack=SCRIPT, threads=[thread(stack)])
    return bundle(front(), one, **{"options": NIXL, "phase": Phase.SERVING, **more})


def test_one_side_introduces_itself_all_the_while(judge):
    assert judge(_introduces("_nixl_handshake"), "pd_handshake").word == "supported"
    asked = {"question": "no token within 60 s"}
    assert judge(_introduces("_nixl_handshake", main=True, **asked), "pd_handshake").word == "supported"
    for made in (
        _introduces("_nixl_handshake_listener", **asked),
        _introduces("_nixl_handshake", main=True),
        _introduces("start_load_kv", **asked),
        _introduces("_nixl_handshake", options={}),
    ):
        assert judge(made, "pd_handshake").finding is None


@pytest.mark.parametrize("text", ["Triton Error [CUDA]: out of memory", "HIP error: hipErrorOutOfMemory"])
def test_memory_of_a_gpu_is_full_in_other_words(text):
    found = refusal(f"RuntimeError: {text}")
    assert found
    assert found.kind is Kind.GPU_MEMORY
