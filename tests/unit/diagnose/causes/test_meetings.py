"""Meetings that are refused at once, gone to through a proxy, of the other family, or dropped on the way."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.look import Listener
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import NO_PTRACE, bundle, host, interface, line, ordinary_facts, rank, socket

STORE = ["_create_c10d_store (torch/distributed/rendezvous.py:189)", "main (serve.py:9)"]
SHAKES = ["poll (zmq/sugar/poll.py:106)", "startup_handshake (vllm/v1/engine/core.py:900)"]
RAY = ["__init__ (ray/_private/gcs_utils.py:160)", "main (serve.py:9)"]
REDUCES = ["all_reduce (torch/distributed/distributed_c10d.py:2900)", "forward (serve.py:20)"]
LAN = host(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.0.0.2")))
AWAY = {"options": {"master-addr": "10.0.0.9", "master-port": "29501"}}
HERE = {"options": {"master-addr": "10.0.0.2", "master-port": "29501"}}
JOINED = "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."


def _joins(stack=STORE, *, files=(), said="", facts=None, **told) -> Bundle:
    log = [line(said, level="ERROR")] if said else []
    told = {"phase": Phase.RENDEZVOUS, "host": LAN, "nodes": 2, "log": log, **told}
    made = rank(0, stack=stack, files=files, syscall="clock_nanosleep(0x0)", facts=facts or ordinary_facts())
    return bundle(made, **told)


@pytest.mark.parametrize(
    ("stack", "options"),
    [
        (STORE, AWAY["options"]),
        (SHAKES, {"data-parallel-address": "10.0.0.9", "data-parallel-rpc-port": "13345"}),
    ],
)
def test_each_try_is_refused_at_once(judge, stack, options):
    assert judge(_joins(stack, options=options), "rendezvous_unreachable").word == "supported"
    assert judge(_joins(["load (serve.py:9)"], options=options), "rendezvous_unreachable").finding is None
    port = next(word for name, word in options.items() if "port" in name)
    made = [socket("10.0.0.2:41000", f"10.0.0.9:{port}")]
    assert judge(_joins(stack, options=options, files=made), "rendezvous_unreachable").finding is None


def test_what_cannot_be_looked_into_may_be_connected(judge):
    hidden = ordinary_facts(variables=NO_PTRACE)
    assert judge(_joins(facts=hidden, **AWAY), "rendezvous_unreachable").word not in {"established", "supported"}


def test_a_variable_need_not_be_where_ranks_meet(judge):
    told = {"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "29501"}
    assert judge(_joins(environment=told), "rendezvous_unreachable").finding is None


def test_not_all_have_come(judge):
    listens = socket("10.0.0.2:29501", state="LISTEN", fd=40)
    came = socket("10.0.0.2:29501", "10.0.0.9:40000", fd=41)
    assert judge(_joins(files=[listens], said=JOINED, **HERE), "rendezvous_unreachable").word == "supported"
    assert judge(_joins(files=[listens, came], said=JOINED, **HERE), "rendezvous_unreachable").finding is None
    assert judge(_joins(files=[listens], said=JOINED, nodes=1, **HERE), "rendezvous_unreachable").finding is None


PROXY = {"http_proxy": "http://10.7.7.7:3128"}


def test_the_head_is_asked_through_a_proxy(judge):
    told = {"options": {"address": "10.0.0.9:6379"}, "files": [socket("10.0.0.2:5", "10.7.7.7:3128")]}
    assert judge(_joins(RAY, environment=PROXY, **told), "http_proxy").word == "supported"
    assert judge(_joins(STORE, environment=PROXY, **told), "http_proxy").finding is None
    past = {**PROXY, "no_proxy": "localhost,127.0.0.1,10.0.0.0/8"}
    assert judge(_joins(RAY, environment=past, **told), "http_proxy").word == "excluded"


def test_a_client_says_that_its_own_address_went_to_a_proxy(judge):
    failed = "HTTPConnectionPool(host='{}', port=30000): Max retries exceeded (Caused by ProxyError('proxy'))"
    told = {"environment": PROXY, "listeners": [Listener(host="127.0.0.1", port=30000, pid=4100)]}
    assert judge(_joins(said=failed.format("127.0.0.1"), **told), "http_proxy").word == "established"
    assert judge(_joins(said=failed.format("huggingface.co"), **told), "http_proxy").finding is None


def test_a_proxy_on_this_machine_is_not_the_servers_own_address(judge):
    told = {"environment": {"http_proxy": "http://127.0.0.1:7890", "https_proxy": "http://127.0.0.1:7890"}}
    told["listeners"] = [Listener(host="127.0.0.1", port=30000, pid=4100)]
    hub = "HTTPSConnectionPool(host='huggingface.co', port=443): ProxyError('cannot connect to proxy http://127.0.0.1:7890')"
    assert judge(_joins(said=hub, **told), "http_proxy").finding is None


def test_a_port_refuses_the_family_that_nobody_there_speaks(judge):
    told = {"listeners": [Listener(host="127.0.0.1", port=8000, pid=4100)]}
    assert (
        judge(_joins(said="connect to ::1 port 8000 failed: Connection refused", **told), "ipv6").word == "supported"
    )
    assert judge(_joins(said="connect to 127.0.0.1 port 8000: Connection refused", **told), "ipv6").finding is None
    assert judge(_joins(said="dial tcp [::1]:9000: connect: connection refused", **told), "ipv6").finding is None


def test_a_host_of_a_family_that_is_switched_off(judge):
    said = "OSError: [Errno 97] Address family not supported by protocol"
    assert judge(_joins(said=said, options={"host": "::"}), "ipv6").word == "supported"
    assert judge(_joins(said=said, options={"host": "0.0.0.0"}), "ipv6").finding is None


def _two_machines(*, forgotten: bool) -> Bundle:
    ends = [("10.0.0.2:41000", "10.0.0.9:29501"), ("10.0.0.9:29501", "10.0.0.2:41000")]
    other = [socket("10.0.0.9:29501", state="LISTEN", fd=40), socket("10.0.0.9:50000", "10.0.0.2:50001", fd=42)]
    here = rank(0, stack=REDUCES, files=[socket(*ends[0], fd=41)])
    there = rank(1, stack=REDUCES, files=[*other, *([] if forgotten else [socket(*ends[1], fd=41)])])
    moved = replace(
        there.look.process, id=replace(there.look.process.id, pid=there.look.process.id.pid + PIDS_A_NODE)
    )
    there = there._replace(look=replace(there.look, process=moved))
    return bundle(here, there, phase=Phase.SERVING, nodes=2, hosts=("a", "b"))


def test_a_connection_that_one_side_has_forgotten(judge):
    assert judge(_two_machines(forgotten=True), "idle_connection_drop").word == "supported"
    assert judge(_two_machines(forgotten=False), "idle_connection_drop").finding is None


def test_a_connection_that_has_gone_silent(judge):
    said = "NCCL WARN Net : Call to recv from 10.0.0.9<41468> failed : Connection timed out"
    assert judge(_joins(REDUCES, said=said, phase=Phase.SERVING), "idle_connection_drop").word == "supported"
    assert judge(_joins(["load (serve.py:9)"], said=said), "idle_connection_drop").finding is None
    never = "NCCL WARN Net : connect to 10.0.0.9<41468> failed in send setup : Connection timed out"
    assert judge(_joins(REDUCES, said=never), "idle_connection_drop").finding is None


def test_the_kernel_drops_what_it_has_no_room_for(judge):
    full = {"kernel_log": ["nf_conntrack: nf_conntrack: table full, dropping packet"], "phase": Phase.SERVING}
    assert judge(_joins(REDUCES, **full), "idle_connection_drop").word == "supported"
    assert judge(_joins(["load (serve.py:9)"], **full), "idle_connection_drop").finding is None
