"""Storage that is slow or silent, memory that is short, pinned or too small, models that do not fit."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    ended,
    file,
    folder,
    front,
    gpus,
    host,
    line,
    ordinary_facts,
    place,
    rank,
    socket,
)

LOADS = ["_copy (torch/_tensor.py:900)", "load_weights (vllm/model_executor/model_loader/weight_utils.py:500)"]
NOWHERE = "none: it blocks outside of any system call"
IDLE = Moves()
FAULT = ("folio_wait_bit_common", "filemap_fault")
SHARD = "/mnt/m/model-00001-of-00030.safetensors"
UNREADABLE = Gap(what="kernel function", reason=GapReason.NO_PERMISSION)


def _held(filesystem: str, *, moves: Moves = IDLE, **more: object) -> Bundle:
    told: dict[str, object] = {"state": "D", "kernel": FAULT, **more}
    ranks = rank(0, stack=LOADS, syscall=NOWHERE, moves=moves, files=[file(SHARD, filesystem=filesystem)], **told)
    return bundle(front(), ranks, phase=Phase.WEIGHTS)


def test_a_wait_for_a_network_file_system_is_slow_storage(judge):
    said = judge(_held("nfs4", moves=Moves(faults=500, read_bytes=1 << 20)), "slow_storage")
    assert said.word == "established"
    assert "works, and takes long" in said.title
    assert "folio_wait_bit_common" in said.evidence


def test_where_nothing_comes_the_storage_does_not_answer(judge):
    assert "does not answer" in judge(_held("fuse.s3fs"), "slow_storage").title


def test_the_same_on_a_local_disk_establishes_nothing(judge):
    assert judge(_held("ext4"), "slow_storage").finding is None
    assert judge(_held("ext4", moves=Moves(faults=500)), "slow_storage").word == "supported"
    assert judge(_held("fuse.fuse-overlayfs"), "slow_storage").finding is None


def test_a_wait_across_a_network_may_be_one_that_a_signal_ends(judge):
    assert (
        judge(_held("fuse.sshfs", state="S", kernel=("request_wait_answer",)), "slow_storage").word == "established"
    )
    assert judge(_held("fuse.sshfs", state="S", kernel=("futex_wait_queue",)), "slow_storage").finding is None


def test_weights_that_are_read_on_slowly_support(judge):
    reads = rank(0, moves=Moves(read_bytes=20 << 20), files=[file(SHARD, filesystem="nfs4")])
    assert judge(bundle(front(), reads, phase=Phase.WEIGHTS), "slow_storage").word == "supported"
    assert judge(bundle(front(), reads, phase=Phase.KV_CACHE), "slow_storage").finding is None


def test_a_thread_that_waits_elsewhere_is_not_held_by_storage(judge):
    assert judge(_held("nfs4", kernel=("nvidia_ioctl", "os_acquire_mutex")), "slow_storage").finding is None
    assert judge(_held("nfs4", kernel=(), wchan=UNREADABLE), "slow_storage").finding is None


def test_a_machine_short_of_memory_leaves_it_open(judge):
    made = _held("nfs4")
    short = Pressure(memory_some=60.0)
    made = replace(made, looks=tuple(replace(look, pressure=short) for look in made.looks))
    assert judge(made, "slow_storage").word == "open"


def test_shards_that_are_counted_give_the_time_that_is_left(judge):
    log = [line(f"Loading shards: {n}/30 [0{n}:00<40:00, 60s/it]", ago_s=200 - 60 * n) for n in (1, 2, 3)]
    made = replace(_held("nfs4", moves=Moves(faults=500)), logs=bundle(log=log).logs)
    assert "3 of 30 shards in 3 min 00 s: about 27 min 00 s to go" in judge(made, "slow_storage").evidence


def test_a_counter_that_stopped_long_ago_is_no_slow_storage(judge):
    log = [line(f"Loading shards: {n}/30 [0{n}:00<40:00, 60s/it]", ago_s=9000 - 60 * n) for n in (1, 2, 3)]
    meets = rank(0, stack=["all_reduce (vllm/pynccl.py:168)"], files=[file(SHARD, filesystem="nfs4")])
    assert judge(bundle(front(), meets, phase=Phase.WEIGHTS, log=log), "slow_storage").finding is None


def test_weights_on_a_slow_disk_are_foreseen(judge):
    slow = host(places=(place("weights", "/mnt/m", filesystem="lustre", needed_bytes=9 * GB),))
    assert judge(bundle(host=slow), "slow_storage", before=True).word == "supported"
    assert judge(bundle(), "slow_storage", before=True).finding is None


def _flow(**bytes_: int | Gap) -> Bundle:
    web = socket("10.0.0.2:50000", "10.7.7.7:50052")
    made = bundle(front(), rank(0, stack=LOADS, files=[web]), phase=Phase.WEIGHTS)
    first, last = made.looks

    def counted(look, sent):
        files = (replace(web, socket=replace(web.socket, sent_bytes=sent, received_bytes=0)),)
        return replace(
            look,
            processes=tuple(replace(one, files=files if one.process.rank == 0 else ()) for one in look.processes),
        )

    return replace(made, looks=(counted(first, bytes_["before"]), counted(last, bytes_["after"])))


def test_a_connection_over_which_much_passes_moves_the_model(judge):
    assert judge(_flow(before=1000, after=80_000_000), "slow_network_load").word == "established"
    assert judge(_flow(before=1000, after=2000), "slow_network_load").finding is None
    unseen = Gap(what="bytes", reason=GapReason.NOT_SUPPORTED)
    assert judge(_flow(before=unseen, after=unseen), "slow_network_load").finding is None


def test_a_download_that_grows_is_slow_and_not_stuck(judge):
    grows = [folder("download", "/hub/models--a/blobs", bytes_=5 * GB, grows=30 << 20)]
    stack = ["http_get (huggingface_hub/file_download.py:480)"]
    made = bundle(front(), rank(0, stack=stack), phase=Phase.WEIGHTS, folders=grows)
    assert judge(made, "slow_network_load").word == "established"
    assert judge(made, "download_stuck").word == "excluded"
    still = [folder("download", "/hub/models--a/blobs", bytes_=5 * GB)]
    stuck = bundle(front(), rank(0, stack=stack), phase=Phase.WEIGHTS, folders=still)
    assert judge(stuck, "download_stuck").word == "established"
    elsewhere = bundle(front(), rank(0, stack=LOADS), phase=Phase.WEIGHTS, folders=still)
    assert judge(elsewhere, "download_stuck").finding is None


def _pressed(share: float, *, pages: int = 0, **more: object) -> Bundle:
    made = bundle(front(), rank(0, stack=LOADS, **more), phase=Phase.WEIGHTS)
    before = Pressure(memory_some=share, memory_free_bytes=GB, swapped_in=0, swapped_out=0)
    after = replace(before, swapped_in=pages, swapped_out=pages)
    first, last = made.looks
    return replace(made, looks=(replace(first, pressure=before), replace(last, pressure=after)))


def test_swapping_decides_only_together_with_pressure(judge):
    assert judge(_pressed(40.0, pages=20_000), "memory_pressure").word == "established"
    assert judge(_pressed(3.0, pages=20_000), "memory_pressure").finding is None
    assert judge(_pressed(20.0), "memory_pressure").finding is None
    assert judge(_pressed(40.0), "memory_pressure").word == "supported"
    assert judge(_pressed(0.0), "memory_pressure").word == "excluded"


def test_a_thread_in_reclaim_under_pressure_decides(judge):
    made = _pressed(40.0, state="D", kernel=("shrink_node", "try_to_free_pages"), syscall=NOWHERE)
    assert judge(made, "memory_pressure").word == "established"


def test_pressure_that_could_not_be_seen_is_a_gap(judge):
    assert judge(bundle(front(), rank(0)), "memory_pressure").word in {"not examined", "not seen"}


def test_pinning_is_decided_by_the_call_and_the_growth(judge):
    native = ["cudaHostRegister (libcudart.so.12)"]
    grows = rank(0, native=native, moves=Moves(locked_bytes=3 * GB))
    assert judge(bundle(front(), grows), "host_memory_pin").word == "established"
    assert judge(bundle(front(), rank(0, native=native)), "host_memory_pin").word == "supported"
    assert judge(bundle(front(), rank(0, moves=Moves(memory_bytes=3 * GB))), "host_memory_pin").finding is None


SMALL = {"shm_bytes": 64 << 20, "shm_used_bytes": 63 << 20}
REFUSED = "NCCL WARN Call to posix_fallocate failed: No space left on device"


def test_shared_memory_needs_a_refusal_or_a_place(judge):
    in_nccl = rank(0, native=["ncclShmOpen (libnccl.so.2)"])
    told = bundle(front(), rank(0), host=host(**SMALL), log=[line(REFUSED, level="WARNING")])
    assert judge(told, "shm_too_small").word == "established"
    assert judge(bundle(front(), in_nccl, host=host(**SMALL)), "shm_too_small").word == "supported"
    assert judge(bundle(front(), rank(0), host=host(**SMALL)), "shm_too_small").finding is None
    assert judge(bundle(front(), in_nccl, log=[line(REFUSED)]), "shm_too_small").word == "excluded"


def test_a_full_disk_is_not_full_shared_memory(judge):
    disk = line("OSError: [Errno 28] No space left on device: '/var/log/x'", level="ERROR")
    assert judge(bundle(front(), rank(0), host=host(**SMALL), log=[disk]), "shm_too_small").finding is None


def test_a_bus_error_supports(judge):
    died = ended(rank(1), signal=7)
    assert judge(bundle(front(), rank(0), host=host(**SMALL), exits=(died,)), "shm_too_small").word == "supported"


def test_small_shared_memory_is_foreseen(judge):
    assert judge(bundle(host=host(**SMALL)), "shm_too_small", before=True).word == "supported"


def _model(needed: int, **more: object) -> Bundle:
    return bundle(host=host(places=(place("weights", "/m", needed_bytes=needed * GB),)), **more)


@pytest.mark.parametrize(
    ("needed", "more", "word"),
    [
        (200, {"gpus": gpus(2)}, "established"),
        (200, {"gpus": gpus(2), "options": {"quantization": "fp8"}}, "supported"),
        (200, {"gpus": gpus(2), "nodes": 4}, "not seen"),
        (100, {"gpus": gpus(2)}, "not seen"),
        (450, {"gpus": ()}, "supported"),
    ],
)
def test_a_model_that_does_not_fit_is_foreseen(judge, needed, more, word):
    assert judge(_model(needed, **more), "model_too_large", before=True).word == word


def test_a_download_needs_room(judge):
    full = place("hub_cache", "/hub", needed_bytes=90 * GB, free_bytes=10 * GB)
    assert judge(bundle(host=host(places=(full,)), gpus=gpus(2)), "model_too_large", before=True).word == "supported"


def test_gpus_in_use_are_foreseen_and_never_told_of_a_start_under_way(judge):
    used = bundle(gpus=gpus(2, memory_used_bytes=60 * GB))
    assert judge(used, "gpu_in_use", before=True).word == "supported"
    assert judge(bundle(gpus=gpus(2)), "gpu_in_use", before=True).finding is None


def test_much_in_swap_supports_only_under_pressure(judge):
    facts = ordinary_facts(swapped_bytes=4 * GB)
    assert judge(_pressed(40.0, facts=facts), "memory_pressure").word == "supported"
    assert judge(_pressed(2.0, facts=facts), "memory_pressure").finding is None
