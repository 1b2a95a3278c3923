"""The container forbids what the server needs: a capability, a system call, a device."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.diagnose import where
from firstlight.diagnose.causes.ulimit import everyone
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.losses import CRASHES, TOGETHER_S
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines

_FORBIDDEN = re.compile(
    r"operation not permitted|EPERM|permission denied|errno:? 1\b|errno 13\b|error 1\b", re.IGNORECASE
)
_NOT_PERMITTED = re.compile(r"operation not permitted|\bEPERM\b", re.IGNORECASE)


class _Need(NamedTuple):
    """What a refused call would have needed: a capability, or that no filter forbids it."""

    call: re.Pattern[str]
    capability: str
    option: str


_NEEDS = (
    _Need(
        re.compile(r"pidfd_getfd|pidfd_open|ptrace|process_vm_", re.IGNORECASE), "sys_ptrace", "--cap-add=SYS_PTRACE"
    ),
    _Need(re.compile(r"\bmlock|ibv_reg_mr|ibv_create", re.IGNORECASE), "ipc_lock", "--cap-add=IPC_LOCK"),
    _Need(re.compile(r"sched_setscheduler|setpriority", re.IGNORECASE), "sys_nice", "--cap-add=SYS_NICE"),
)
_RAISED = re.compile(r"^(?!.*(py-?spy|\bgdb\b|strace)).*(\w(Error|Exception)\b|fatal|abort)", re.IGNORECASE)
"""A refusal that was raised; one that is only warned of does no harm, and one of a debugger is not the server's."""
_FAILS = re.compile(r"error|fail|unable|cannot|not (found|available|permitted)", re.IGNORECASE)
_FILTERED = re.compile(r"\b(io_uring|perf_event_open|userfaultfd|keyctl)\w*.*(not permitted|EPERM)", re.IGNORECASE)
_ERROR_1 = re.compile(r"\berrno\W{1,3}1\b|(process_vm|cma|vader).*(not permitted|EPERM)", re.IGNORECASE)
_ACROSS = r"mca_(btl_(vader|sm)|smsc_cma)|uct_cma|process_vm_(readv|writev)"
"""Where MPI and UCX copy from one rank's memory to another's by way of the kernel."""
_DEVICES = {
    "/dev/nvidia-caps-imex-channels": re.compile(r"nvshmem|mnnvl|imex|ibgda", re.IGNORECASE),
    "/dev/infiniband": re.compile(r"ibgda|ibv_|no (ib|rdma|infiniband) device", re.IGNORECASE),
    "/dev/gdrdrv": re.compile(r"gdr_open|gdrcopy", re.IGNORECASE),
}


def _refused(scene: Scene) -> Iterator[tuple[Sighting, _Need]]:
    """Lines that say that a call was forbidden, and what it would have needed."""
    for line in lines(scene.bundle):
        need = next((one for one in _NEEDS if one.call.search(line.message)), None)
        if need and _FORBIDDEN.search(line.message) and _RAISED.search(line.message):
            yield Sighting(shortened(f"log: {line.message}"), (line.pid,) if line.pid else (), need.option), need


def _lacking(scene: Scene, need: _Need) -> Iterator[Sighting | Gap]:
    """Processes that lack a capability, or live under a filter of system calls without it."""
    for one in everyone(scene):
        pid, capabilities = one.process.id.pid, one.facts.capabilities
        if isinstance(capabilities, Gap):
            yield capabilities
        elif need.capability not in capabilities:
            filtered = ", and a seccomp filter" if one.facts.seccomp == 2 else ""
            quote = f"/proc/{pid}/status: {scene.name(pid)} has no CAP_{need.capability.upper()}{filtered}"
            yield Sighting(shortened(quote), (pid,), need.option)
            return


def _told_and_lacking(scene: Scene) -> Iterator[Sighting | Gap]:
    for sighting, need in _refused(scene):
        yield from both([sighting], _lacking(scene, need))


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from (sighting for sighting, _ in _refused(scene))


def _filtered_call(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that a system call was forbidden that filters forbid and no capability allows, under a filter."""
    told = [
        Sighting(shortened(f"log: {line.message}"), what="--security-opt seccomp=unconfined")
        for line in lines(scene.bundle)
        if _FILTERED.search(line.message)
    ]
    yield from both(told, _under_filter(scene))


def _under_filter(scene: Scene) -> Iterator[Sighting]:
    for one in everyone(scene):
        if one.facts.seccomp == 2:
            pid = one.process.id.pid
            yield Sighting(f"{scene.name(pid)} is under a seccomp filter", (pid,))


def _died_of_it(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process ended by itself as the log told that something is not permitted, where a filter forbids system
    calls: which one, it did not say."""
    gone = next(iter(scene.deaths), None)
    if gone is None or (gone.signal is not None and gone.signal not in CRASHES):
        return
    told = [
        Sighting(shortened(f"log: {line.message}"), (gone.id.pid,), "--security-opt seccomp=unconfined")
        for line in lines(scene.bundle)
        if _NOT_PERMITTED.search(line.message) and abs(gone.at - line.at) <= TOGETHER_S
    ]
    yield from both(told, _under_filter(scene))


def _reads_others(scene: Scene) -> Iterator[Sighting | Gap]:
    """A rank stands where memory of other ranks is read through the kernel, the log tells error 1, and a process
    lacks the capability for it: MPI goes on asking."""
    messages = (line.message for line in lines(scene.bundle))
    told = [Sighting(shortened(f"log: {message}")) for message in messages if _ERROR_1.search(message)]
    yield from both(both(told, where.stands(scene, _ACROSS, native=True)), _lacking(scene, _NEEDS[0]))


def _absent_device(scene: Scene) -> Iterator[Sighting | Gap]:
    """A transport between GPUs fails, and the device that it needs is not in the container."""
    here = scene.bundle.host.devices
    if isinstance(here, Gap):
        yield here
        return
    for device, wants in _DEVICES.items():
        told = [line for line in lines(scene.bundle) if wants.search(line.message) and _FAILS.search(line.message)]
        if told and device not in here:
            yield Sighting(f"{device} is not there", what=f"--device {device}")
            yield Sighting(shortened(f"log: {told[0].message}"))


CAUSE = Cause(
    id="container_caps",
    nature=Nature.MACHINE,
    title="the container forbids what the server needs ({what})",
    clues=(
        decides("Was a call forbidden, and does a process lack the capability for it?", _told_and_lacking),
        supports("Does the log say that such a call was forbidden?", _told),
        supports("Is memory of other ranks read, and was that refused?", _reads_others),
        supports("Was a call forbidden that filters of system calls forbid?", _filtered_call),
        supports("Did a process end as something was forbidden, under a filter of system calls?", _died_of_it),
        supports("Does a transport fail whose device is not there?", _absent_device),
    ),
    advice=Advice(
        confirm=("grep -E 'CapEff|Seccomp' /proc/{pid}/status; capsh --decode=CAPEFF; ls /dev",),
        work_around=(
            "Without IMEX channels: NVIDIA_IMEX_CHANNELS=0 for the container's runtime, NCCL_MNNVL_ENABLE=0.",
        ),
        repair=(
            (
                "docker run {what}, or in Kubernetes securityContext.capabilities.add; --security-opt "
                "seccomp=unconfined only if a capability does not do."
            ),
        ),
    ),
    traps=("What forbids the server to look at its own processes forbids py-spy, too.",),
)
