"""Network interfaces with their addresses, and what the machine makes of a host name.

Price: reads; `resolved` asks the resolver, and so perhaps a name server. Kinds of interface from if_arp.h and
Documentation/ABI/testing/sysfs-class-net of the kernel, addresses from netdevice(7) and /proc/net/if_inet6.
"""

import array
import errno
import fcntl
import socket
import struct
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

import msgspec

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap
from firstlight.core.host import Interface, Resolved
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host import sysfs
from firstlight.evidence.workers import Probe

INTERFACES_MAX = 256
NAMES_MAX = 16
ADDRESSES_MAX = 16
_WHAT = "address of a host name"

_SIOCGIFCONF = 0x8912
_IFREQ = struct.Struct("16s4xI16x")
"""A name, and an IPv4 address in a struct sockaddr_in."""
_IFF_UP = 1
_ETHERNET, _INFINIBAND, _LOOPBACK = 1, 32, 772
_TUNNELS = frozenset({768, 769, 776, 778, 783, 823, 65534})
"""ARPHRD_ of IP in IP, of IPv6, sit, GRE and of devices without any header (tun, WireGuard)."""
_TUNNEL_TYPES = frozenset({"vxlan", "geneve", "wireguard", "ppp", "gretap"})
_ON_TOP_OF_ETHERNET = frozenset({"bond", "vlan", "team"})


def interfaces(sys_root: Path = Path("/sys")) -> tuple[Interface, ...] | Gap:
    """Every network interface of this network namespace."""
    try:
        names = sorted(entry.name for entry in (sys_root / "class" / "net").iterdir() if entry.is_dir())
    except OSError as error:
        return Gap(what="network interfaces", reason=GapReason.NOT_SUPPORTED, detail=str(error))
    addresses = _addresses()
    return tuple(_interface(sys_root / "class" / "net" / name, addresses) for name in names[:INTERFACES_MAX])


def _interface(folder: Path, addresses: dict[str, list[str]]) -> Interface:
    flags, state = sysfs.text(folder / "flags"), sysfs.text(folder / "operstate")
    return Interface(
        name=clean_text(folder.name),
        kind=kind_of(folder),
        up=bool(int(flags or "0", 16) & _IFF_UP) and state not in {"down", "lowerlayerdown", "notpresent"},
        addresses=tuple(addresses.get(folder.name, ())[:ADDRESSES_MAX]),
    )


def kind_of(folder: Path) -> str:
    """The kind of an interface, from its folder in /sys/class/net."""
    hardware = int(sysfs.text(folder / "type") or "0")
    rows = dict(row.split("=", 1) for row in sysfs.text(folder / "uevent").splitlines() if "=" in row)
    type_ = rows.get("DEVTYPE", "")
    if hardware == _LOOPBACK:
        return "loopback"
    if hardware == _INFINIBAND:
        return "infiniband"
    if (folder / "bridge").is_dir():
        return "bridge"
    if hardware in _TUNNELS or type_ in _TUNNEL_TYPES or (folder / "tun_flags").exists():
        return "tunnel"
    if hardware != _ETHERNET:
        return "other"
    return "ethernet" if (folder / "device").exists() or type_ in _ON_TOP_OF_ETHERNET else "virtual"


def _addresses() -> dict[str, list[str]]:
    """The addresses of every interface, IPv4 first."""
    found: dict[str, list[str]] = defaultdict(list)
    with suppress(OSError):
        for name, address in _ipv4_addresses():
            found[name.partition(":")[0]].append(address)
    with suppress(OSError):
        for name, packed in procfs.ipv6_addresses():
            found[name].append(str(IPv6Address(packed)))
    return found


def _ipv4_addresses() -> list[tuple[str, str]]:
    """Interfaces with their IPv4 addresses, from SIOCGIFCONF. Raises OSError."""
    room = array.array("B", bytes(_IFREQ.size * INTERFACES_MAX))
    address, length = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        answer = fcntl.ioctl(asking, _SIOCGIFCONF, struct.pack("iL", length, address))
    used, _ = struct.unpack("iL", answer)
    rows = _IFREQ.iter_unpack(room.tobytes()[:used])
    return [(name.partition(b"\0")[0].decode(), socket.inet_ntoa(struct.pack("=I", raw))) for name, raw in rows]


def resolved(names: Sequence[str], deadline: Deadline) -> tuple[Resolved, ...]:
    """What each of these names means here. Ends by the deadline."""
    wanted = [name for name in dict.fromkeys(names) if name][:NAMES_MAX]
    probes = {name: Probe(_WHAT, partial(_resolve, name)) for name in wanted}
    return tuple(
        Resolved(name=clean_text(name), addresses=in_words(probe.result(deadline), deadline))
        for name, probe in probes.items()
    )


def in_words(answer: tuple[str, ...] | Gap, deadline: Deadline) -> tuple[str, ...] | Gap:
    """The answer, or the gap with the reason why a resolver is late."""
    if not isinstance(answer, Gap) or answer.reason is not GapReason.TIMED_OUT:
        return answer
    detail = f"no answer within {deadline.seconds:g} s; the name servers of /etc/resolv.conf may be out of reach"
    return msgspec.structs.replace(answer, detail=detail)


def _resolve(name: str) -> tuple[str, ...] | Gap:
    try:
        answers = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except (socket.gaierror, UnicodeError) as error:
        return Gap(what=_WHAT, reason=GapReason.FAILED, detail=_why(error))
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))[:ADDRESSES_MAX]


def _why(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name is not known here: {error.strerror or errno.errorcode.get(error.errno or 0, 'unknown')}"
    return "this can be no host name"
