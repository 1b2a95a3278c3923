"""Interfaces that ranks of several machines take, are told to take, or do not have."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import bundle, host, interface, line, rank, socket

JOINS = ["ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:400)", "init (serve.py:9)"]
LOADS = ["load (serve.py:10)"]
LO, ETH = interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.0.0.2")
NICS = (LO, ETH, interface("docker0", "172.17.0.1", kind="bridge"))
IN_CONTAINER = (LO, interface("eth0", "172.17.0.5", kind="virtual"))
DOCKER = "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"
BOTH = "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0> [1]eth0:10.0.0.2<0>"
BOUND = "zmq.error.ZMQError: Cannot assign requested address (addr='tcp://{}:41001')"


def _joins(*, stack=JOINS, nodes=2, nics=NICS, said="", files=(), **told) -> Bundle:
    log = [line(said, level="WARNING")] if said else []
    told = {"phase": Phase.COMM_INIT, "host": host(interfaces=nics), "nodes": nodes, "log": log, **told}
    return bundle(rank(0, stack=stack, files=files), **told)


@pytest.mark.parametrize("value", ["lo", "docker0", "lo,docker0"])
def test_a_variable_that_leaves_no_way_out(judge, value):
    told = {"environment": {"NCCL_SOCKET_IFNAME": value}}
    assert judge(_joins(**told), "wrong_interface").word == "supported"
    assert judge(_joins(nodes=1, **told), "wrong_interface").finding is None
    assert judge(_joins(stack=LOADS, **told), "wrong_interface").finding is None
    assert judge(_joins(environment={"NCCL_SOCKET_IFNAME": f"{value},eth0"}), "wrong_interface").finding is None


def test_a_library_tells_which_interface_it_took(judge):
    assert judge(_joins(said=DOCKER), "wrong_interface").word == "supported"
    assert judge(_joins(said=DOCKER, nodes=1), "wrong_interface").finding is None
    assert judge(_joins(said=BOTH), "wrong_interface").finding is None


def test_a_rank_that_meets_itself_at_loopback(judge):
    failed = "connectFullMesh failed: timed out connecting, remote=[{0}]:4, (rank=8, size=16, local=[{0}])"
    assert judge(_joins(said=failed.format("127.0.0.1")), "wrong_interface").word == "supported"
    assert judge(_joins(said=failed.format("127.0.0.1"), nodes=1), "wrong_interface").finding is None
    assert judge(_joins(said=failed.format("10.0.0.9")), "wrong_interface").finding is None


def test_the_way_out_of_a_container_is_virtual_and_right(judge):
    own = "The server socket on [172.17.0.5]:29500 has timed out, will retry."
    bound = [socket("172.17.0.5:29500", state="LISTEN")]
    assert judge(_joins(nics=IN_CONTAINER, said=own, files=bound), "wrong_interface").finding is None
    beside = (*IN_CONTAINER, interface("ib0", "10.9.0.2", kind="infiniband"))
    assert judge(_joins(nics=beside, said=own), "wrong_interface").word == "established"


def test_an_address_that_is_none_of_this_machines_cannot_be_listened_at(judge):
    said = judge(_joins(said=BOUND.format("10.5.5.5")), "wrong_interface")
    assert said.word == "established"
    assert "10.5.5.5, which is no address of this machine" in said.title
    assert judge(_joins(said=BOUND.format("10.0.0.2")), "wrong_interface").finding is None
    no_port_left = "connect to 10.5.5.5:80 failed: [Errno 99] Cannot assign requested address"
    assert judge(_joins(said=no_port_left), "wrong_interface").finding is None


def test_an_interface_of_mpi_matters_where_it_is_missed(judge):
    told = {"environment": {"OMPI_MCA_btl_tcp_if_include": "ib0"}}
    assert judge(_joins(**told), "wrong_interface").finding is None
    assert judge(_joins(said="interface ib0 not found", **told), "wrong_interface").word == "established"
    network = {"environment": {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"}}
    assert judge(_joins(said="interface ib0 not found", **network), "wrong_interface").finding is None
