"""Reports whose cases were written before anybody ran a diagnosis of them: the tenth ones, of servers that nearly all
are still there and say nothing. Who wrote them had read neither the causes nor what is said of them, but the titles.
The logs went through the reader of each server's log, so that what counts as an error in them is what firstlight
would have kept."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.tenth import devices, divided, ends, loads, unknown, waits

from firstlight.core.bundle import Bundle

GH = "https://github.com/"

FIRST_RUN = FirstRun(established=9, supported=11, missed=10, undecided=12, wrong=1, false=2)


def _decided(where: str, cause: str, shows: str, pair: tuple[Bundle, Bundle], *beside: str) -> Case:
    (id_, path), (seen, twin) = where.split(), pair
    return Case(id=id_, url=GH + path, cause=cause, shows=shows, bundle=seen, twin=twin, companions=frozenset(beside))


def _unknown(where: str, lacks: str, seen: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause="unknown", lacks=lacks, bundle=seen, companions=frozenset(beside))


ENDS = ("process_died", "rank_died", "program_failed")

CASES = (
    _decided(
        "vllm-42987 vllm-project/vllm/issues/42987",
        "kernel_hang_sm",
        "the only rank is in the sampler's mask, its card at 100 % without memory traffic and at 101 of 575 W",
        (waits.top_k(hangs=True), waits.top_k(hangs=False)),
    ),
    _decided(
        "vllm-44954 vllm-project/vllm/pull/44954",
        "draft_comm_init",
        "one data-parallel rank gathers within the drafter, the other coordinates its next batch",
        (divided.drafter(apart=True), divided.drafter(apart=False)),
        "mismatched_collective",
        "rank_elsewhere",
    ),
    _decided(
        "vllm-54618 vllm-project/vllm/pull/54618",
        "autotune",
        "two ranks hit the persisted cache and are past the tuner, two wait in its all-reduce",
        (divided.warm_tuner(hits=True), divided.warm_tuner(hits=False)),
        "mismatched_collective",
        "rank_elsewhere",
    ),
    _decided(
        "vllm-40988 vllm-project/vllm/issues/40988",
        "slow_storage",
        "after the last shard the rank still waits for pages of the mapped checkpoint, 131 MiB/s",
        (loads.last_pages(waits=True), loads.last_pages(waits=False)),
        "memory_pressure",
    ),
    _decided(
        "vllm-5405 vllm-project/vllm/issues/5405",
        "slow_storage",
        "four ranks wait for pages from a file system in user space, 25 MiB/s each",
        (loads.juice(waits=True), loads.juice(waits=False)),
    ),
    _decided(
        "vllm-23115 vllm-project/vllm/issues/23115",
        "slow_storage",
        "the engine waits for pages of a bucket that is mounted, 16 MiB/s",
        (loads.bucket(waits=True), loads.bucket(waits=False)),
    ),
    _decided(
        "halogen-18 peonist-ai/halogen-flash-server/issues/18",
        "slow_storage",
        "pinning the mapped checkpoint fetches it page by page, 15,000 faults a second for 60 MiB/s",
        (loads.faults_in(waits=True), loads.faults_in(waits=False)),
        "host_memory_pin",
    ),
    _decided(
        "vllm-50794 vllm-project/vllm/pull/50794",
        "cpu_spin",
        "the loading thread computes in one copy, reads nothing and grows by nothing",
        (loads.npu_copy(spins=True), loads.npu_copy(spins=False)),
    ),
    _decided(
        "trtllm-15430 NVIDIA/TensorRT-LLM/issues/15430",
        "host_memory_pin",
        "a rank is in cuMemHostRegister and grows by 73 MiB/s, the other waits for the driver behind it",
        (loads.host_pool(pins=True), loads.host_pool(pins=False)),
        "memory_pressure",
    ),
    _decided(
        "vllm-8458 vllm-project/vllm/issues/8458",
        "hub_network",
        "the first request to the hub is in SYN_SENT, and no weight file is open",
        (waits.offline(connects=True), waits.offline(connects=False)),
    ),
    _decided(
        "hfhub-3944 huggingface/huggingface_hub/pull/3944",
        "download_lock",
        "the download waits for a lock file on NFS that is a day old and belongs to nobody",
        (waits.soft_lock(left=True), waits.soft_lock(left=False)),
        "file_lock_held",
    ),
    _decided(
        "vllm-11138 vllm-project/vllm/pull/11138",
        "resource_wait",
        "the log says that it waits for a placement group, and what it wants",
        (waits.placement(told=True), waits.placement(told=False)),
    ),
    _decided(
        "lighteval-670 huggingface/lighteval/issues/670",
        "fork_after_cuda",
        "the engine was forked from a process with CUDA's threads and devices, and waits for a lock of the driver",
        (waits.forked(seen=True), waits.forked(seen=False)),
        "fork_in_threads",
    ),
    _decided(
        "sglang-3578 sgl-project/sglang/issues/3578",
        "stale_jit_lock",
        "a rank waits for a lock file that is older than it, without a compiler, and seven wait for that rank",
        (waits.mla_build(left=True), waits.mla_build(left=False)),
        "file_lock_held",
        "rank_elsewhere",
    ),
    _decided(
        "sglang-16242 sgl-project/sglang/issues/16242",
        "stale_jit_lock",
        "all ranks wait for a lock file as old as the image, and nobody builds",
        (waits.norm_build(left=True), waits.norm_build(left=False)),
    ),
    _decided(
        "sglang-34233 sgl-project/sglang/pull/34233",
        "rank_died",
        "the last scheduler was killed, and the controller reads a pipe whose other end only it holds",
        (divided.controller(died=True), divided.controller(died=False)),
        "process_died",
        "dead_pipe_peer",
    ),
    _decided(
        "sglang-30760 sgl-project/sglang/issues/30760",
        "mismatched_collective",
        "one rank in an all-reduce of the cache, three in the broadcast of the next round",
        (divided.prefetch_check(apart=True), divided.prefetch_check(apart=False)),
        "rank_elsewhere",
    ),
    _decided(
        "sglang-33289 sgl-project/sglang/issues/33289",
        "nccl_version",
        "the rank is in ncclLocalOpAppend, on aarch64, with NCCL 2.28.9",
        (divided.slots(leaks=True), divided.slots(leaks=False)),
    ),
    _decided(
        "opengpu-1333 NVIDIA/open-gpu-kernel-modules/issues/1333",
        "gpu_fault",
        "ranks hang in the kernel while they open a GPU, the driver warned, and NVML does not answer",
        (devices.orphaned_lock(stuck=True), devices.orphaned_lock(stuck=False)),
    ),
    _decided(
        "gpud-117 leptonai/gpud/pull/117",
        "gpu_fault",
        "Xid 45 of one GPU, whose rank hangs in the kernel and for which NVML does not answer",
        (devices.preempted(stuck=True), devices.preempted(stuck=False)),
        "rank_elsewhere",
    ),
    _decided(
        "rccl-1129 ROCm/rccl/issues/1129",
        "nccl_p2p_pcie",
        "two cards spin in the first collective, and the IOMMU between them translates",
        (devices.instinct_pair(translated=True), devices.instinct_pair(translated=False)),
    ),
    _decided(
        "pytorch-76069 pytorch/pytorch/issues/76069",
        "rendezvous_unreachable",
        "the first node refuses the connection to its store",
        (devices.other_port(refused=True), devices.other_port(refused=False)),
        "wrong_interface",
    ),
    _decided(
        "pytorch-52916 pytorch/pytorch/issues/52916",
        "wrong_interface",
        "two nodes, and NCCL was told to use the loopback, where its connections are refused",
        (devices.loopback(told=True), devices.loopback(told=False)),
        "nccl_rank_lost",
    ),
    _decided(
        "sglang-24588 sgl-project/sglang/issues/24588",
        "slow_jit",
        "one rank is in Triton's compiler, whose cache grows, and seven wait for it",
        (divided.one_compiles(works=True), divided.one_compiles(works=False)),
        "rank_elsewhere",
    ),
    _decided(
        "vllm-32116 vllm-project/vllm/issues/32116",
        "probe_kill",
        "the API server gave up after its time limit, while the engines it had started still warm up",
        (ends.too_patient(given_up=True), ends.too_patient(given_up=False)),
        *ENDS,
        "slow_jit",
    ),
    _decided(
        "aibrix-772 vllm-project/aibrix/issues/772",
        "probe_kill",
        "SIGTERM three minutes after the start, while the download grew by 36 MB/s",
        (ends.probed(killed=True), ends.probed(killed=False)),
        *ENDS,
    ),
    _decided(
        "worker-vllm-46 runpod-workers/worker-vllm/issues/46",
        "hub_network",
        "the hub answers 504, and the start ends of it",
        (ends.hub_down(told=True), ends.hub_down(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-31645 sgl-project/sglang/pull/31645",
        "leftover_process",
        "a port of the plan is in use, by a scheduler that init has adopted",
        (ends.second_launch(left=True), ends.second_launch(left=False)),
        *ENDS,
        "port_in_use",
    ),
    _decided(
        "llmd-2433 llm-d/llm-d/issues/2433",
        "unsupported_combo",
        "the prefill server says that it does not support another size on the other side",
        (ends.unequal_halves(told=True), ends.unequal_halves(told=False)),
        "pd_handshake",
        "program_failed",
    ),
    _decided(
        "srtslurm-251 ishandhanani/srt-slurm/pull/251",
        "download_lock",
        "the worker could not get a lock in the model cache, and the lock file there is half a day old",
        (ends.crashed_job(left=True), ends.crashed_job(left=False)),
        *ENDS,
    ),
    _unknown(
        "vllm-14449 vllm-project/vllm/issues/14449",
        "the way between the two cards, native stacks, a start without peer access",
        unknown.two_ampere(),
    ),
    _unknown("vllm-24133 vllm-project/vllm/issues/24133", "any stack of the workers", unknown.glm()),
    _unknown(
        "vllm-27313 vllm-project/vllm/issues/27313", "the stack of the rank that computes", unknown.once_a_minute()
    ),
    _unknown(
        "vllm-39010 vllm-project/vllm/issues/39010",
        "native stacks, and a start with another RCCL",
        unknown.radeon_capture(),
        "graph_capture",
    ),
    _unknown(
        "ainode-134 getainode/ainode/issues/134",
        "the other node, which still tunes",
        unknown.head_is_done(),
        "rank_elsewhere",
    ),
    _unknown(
        "nccl-2167 NVIDIA/nccl/issues/2167",
        "native stacks, and those of the other seven nodes",
        devices.expert_load(),
    ),
    _unknown(
        "sglang-15805 sgl-project/sglang/pull/15805",
        "the other node, whose ranks make another group",
        unknown.new_group(),
        "rank_elsewhere",
    ),
    _unknown("sglang-15608 sgl-project/sglang/issues/15608", "any stack of the ranks", unknown.moon_shards()),
    _unknown("sglang-3419 sgl-project/sglang/issues/3419", "any stack of the scheduler", ends.silent_load()),
    _unknown("flashinfer-972 flashinfer-ai/flashinfer/issues/972", "the stack of the rank", loads.grows_in_silence()),
    _unknown(
        "trtbackend-377 triton-inference-server/tensorrtllm_backend/issues/377",
        "native stacks of the threads that load",
        unknown.one_triton(),
    ),
    _unknown("mii-222 deepspeedai/DeepSpeed-MII/issues/222", "any stack of the server's ranks", unknown.mii()),
)
