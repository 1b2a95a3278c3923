"""What is left to be seen where stacks may not be taken: phases, sockets, files and variables."""

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import GB, NO_PTRACE, Moves, bundle, file, folder, host, interface, rank, socket

LAN = host(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.0.0.2")))
AWAY = {"options": {"master-addr": "10.0.0.9", "master-port": "29501"}, "nodes": 2, "host": LAN}


def _blind(phase: Phase, *, files=(), told=None, **more) -> Bundle:
    return bundle(rank(0, stack=NO_PTRACE, native=NO_PTRACE, files=files, **more), phase=phase, **(told or {}))


def test_ranks_that_meet_and_never_connect(judge):
    assert judge(_blind(Phase.RENDEZVOUS, told=AWAY), "rendezvous_unreachable").word == "supported"
    assert judge(_blind(Phase.WEIGHTS, told=AWAY), "rendezvous_unreachable").finding is None
    made = [socket("10.0.0.2:41000", "10.0.0.9:29501")]
    assert judge(_blind(Phase.RENDEZVOUS, files=made, told=AWAY), "rendezvous_unreachable").finding is None


def test_an_interface_that_is_not_there(judge):
    told = {"environment": {"GLOO_SOCKET_IFNAME": "ib0"}, "host": LAN}
    assert judge(_blind(Phase.COMM_INIT, told=told), "wrong_interface").word == "supported"
    assert judge(_blind(Phase.SERVING, told=told), "wrong_interface").finding is None
    right = {"environment": {"GLOO_SOCKET_IFNAME": "eth0"}, "host": LAN}
    assert judge(_blind(Phase.COMM_INIT, told=right), "wrong_interface").finding is None


def test_a_disk_that_crawls(judge):
    held = {"state": "D", "wchan": "folio_wait_bit_common", "moves": Moves(read_bytes=GB)}
    weights = [file("/m/model-1.safetensors", size=9 * GB)]
    assert judge(_blind(Phase.WEIGHTS, files=weights, **held), "slow_storage").word == "supported"
    assert judge(_blind(Phase.WEIGHTS, **held), "slow_storage").finding is None
    assert judge(_blind(Phase.SERVING, files=weights, **held), "slow_storage").finding is None


def test_a_download_that_does_not_grow(judge):
    web = [socket("10.0.0.2:41000", "18.155.1.1:443", state="SYN_SENT")]
    still = {"folders": [folder("download", "/hub", bytes_=GB)]}
    assert judge(_blind(Phase.WEIGHTS, files=web, told=still), "download_stuck").word == "supported"
    telemetry = [socket("10.0.0.2:41000", "18.155.1.1:443")]
    assert judge(_blind(Phase.WEIGHTS, files=telemetry, told=still), "download_stuck").finding is None
    grows = {"folders": [folder("download", "/hub", bytes_=GB, grows=GB)]}
    assert judge(_blind(Phase.WEIGHTS, files=web, told=grows), "download_stuck").finding is None
