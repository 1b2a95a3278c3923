"""Interfaces of this machine and recorded ones; names that mean something, nothing, and names that nobody answers."""

import socket
import threading
from pathlib import Path

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host.network import interfaces, kind_of, resolved


def test_this_machine_has_a_loopback_with_its_address() -> None:
    found = interfaces()
    assert not isinstance(found, Gap)
    assert {one.name for one in found} == {name for _, name in socket.if_nameindex()}
    loopback = next(one for one in found if one.kind == "loopback")
    assert "127.0.0.1" in loopback.addresses
    assert loopback.up


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"type": "772"}, "loopback"),
        ({"type": "1", "device/x": ""}, "ethernet"),
        ({"type": "1"}, "virtual"),
        ({"type": "1", "bridge/x": ""}, "bridge"),
        ({"type": "32", "device/x": ""}, "infiniband"),
        ({"type": "65534", "tun_flags": "0x1001"}, "tunnel"),
        ({"type": "1", "tun_flags": "0x1002"}, "tunnel"),
        ({"type": "65534", "uevent": "DEVTYPE=wireguard\nINTERFACE=wg0"}, "tunnel"),
        ({"type": "1", "uevent": "DEVTYPE=vxlan"}, "tunnel"),
        ({"type": "1", "uevent": "DEVTYPE=bond"}, "ethernet"),
        ({"type": "776"}, "tunnel"),
        ({"type": "512"}, "other"),
        ({}, "other"),
    ],
)
def test_the_kind_of_an_interface(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert kind_of(tmp_path) == kind


@pytest.mark.parametrize(
    ("flags", "state", "up"),
    [("0x1003", "up", True), ("0x1003", "unknown", True), ("0x1003", "down", False), ("0x1002", "up", False)],
)
def test_up_is_what_is_switched_on_and_has_a_link(tmp_path: Path, flags: str, state: str, up: bool) -> None:
    folder = tmp_path / "class" / "net" / "eth9"
    folder.mkdir(parents=True)
    (folder / "flags").write_text(flags)
    (folder / "operstate").write_text(state)
    found = interfaces(tmp_path)
    assert not isinstance(found, Gap)
    assert [(one.name, one.up, one.addresses) for one in found] == [("eth9", up, ())]


def test_without_sys_there_is_a_gap(tmp_path: Path) -> None:
    assert isinstance(interfaces(tmp_path), Gap)


def test_names_mean_addresses_or_nothing() -> None:
    names = ["localhost", "", "192.0.2.7", "x" * 300, "localhost", "no such\nhost"]
    found = {one.name: one.addresses for one in resolved(names, Deadline(SystemClock(), 10.0, "names"))}
    assert len(found) == 4
    assert "127.0.0.1" in found["localhost"] or "::1" in found["localhost"]
    assert found["192.0.2.7"] == ("192.0.2.7",)
    unknown = found["x" * 300]
    assert isinstance(unknown, Gap)
    assert unknown.reason is GapReason.FAILED


def test_a_name_server_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait())
    (one,) = resolved(["head-node"], Deadline(SystemClock(), 0.2, "names"))
    never.set()
    assert isinstance(one.addresses, Gap)
    assert one.addresses.reason is GapReason.TIMED_OUT
    assert "name server" in one.addresses.detail
