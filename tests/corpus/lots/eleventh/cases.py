"""Reports whose cases were written before anybody ran a diagnosis of them: the eleventh ones, again of servers that
nearly all are still there. Who wrote them had read neither the causes nor what is said of them, but the titles. The
logs went through the reader of each server's log, so that what counts as an error in them is what firstlight would
have kept."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.eleventh import builds, ends, links, loads, meets, ranks
from tests.corpus.lots.eleventh.undecided import UNDECIDED

from firstlight.core.bundle import Bundle

GH = "https://github.com/"

FIRST_RUN = FirstRun(established=15, supported=12, missed=9, undecided=12)


def _decided(where: str, cause: str, shows: str, pair: tuple[Bundle, Bundle], *beside: str) -> Case:
    (id_, path), (seen, twin) = where.split(), pair
    return Case(id=id_, url=GH + path, cause=cause, shows=shows, bundle=seen, twin=twin, companions=frozenset(beside))


ENDS = ("process_died", "rank_died", "program_failed")
APART = ("mismatched_collective", "rank_elsewhere")

CASES = (
    _decided(
        "vllm-14025 vllm-project/vllm/issues/14025",
        "nccl_p2p_pcie",
        "all ranks are in the first collective, the PCIe cards at 100 % and 97 of 350 W; IOMMU and ACS are on",
        (links.four_ada(seen=True), links.four_ada(seen=False)),
    ),
    _decided(
        "tgi-1838 huggingface/text-generation-inference/issues/1838",
        "nccl_p2p_pcie",
        "all shards are at the first barrier, the PCIe cards at 100 % and 96 of 350 W; IOMMU and ACS are on",
        (links.shards(seen=True), links.shards(seen=False)),
    ),
    _decided(
        "trtllm-16595 NVIDIA/TensorRT-LLM/pull/16595",
        "nccl_nvls",
        "every rank is in ncclNvlsSetup and has warned that the multicast bind fails; the fabric is in progress",
        (links.multicast(seen=True), links.multicast(seen=False)),
        "fabric_not_ready",
    ),
    _decided(
        "vllm-52504 vllm-project/vllm/issues/52504",
        "nccl_version",
        "NCCL 2.28.9 on aarch64 between two GB10; a replayed graph with collectives does not end, 18 W at 96 %",
        (links.replayed(seen=True), links.replayed(seen=False)),
        "graph_replay",
    ),
    _decided(
        "vllm-48486 vllm-project/vllm/issues/48486",
        "preload_shim",
        "every rank has the profiler's injected library, and is in the replay of a graph",
        (links.profiled(seen=True), links.profiled(seen=False)),
        "graph_replay",
    ),
    _decided(
        "vllm-44878 vllm-project/vllm/issues/44878",
        "rendezvous_unreachable",
        "workers here and on another machine are told to meet at 127.0.0.1, and those here wait for more to join",
        (meets.loopback_ray(seen=True), meets.loopback_ray(seen=False)),
        "wrong_interface",
    ),
    _decided(
        "xinference-4810 xorbitsai/inference/issues/4810",
        "rendezvous_unreachable",
        "the second machine's rank asks its own loopback for the store, and is refused",
        (meets.second_box(seen=True), meets.second_box(seen=False)),
        "wrong_interface",
    ),
    _decided(
        "sglang-5553 sgl-project/sglang/issues/5553",
        "unresolvable_host",
        "the first node's name resolves neither for the ranks nor for firstlight",
        (meets.nameless(seen=True), meets.nameless(seen=False)),
        "rendezvous_unreachable",
    ),
    _decided(
        "sglang-10693 sgl-project/sglang/pull/10693",
        "ipv6",
        "the ranks look for each other at 127.0.0.1, on a machine whose interfaces have addresses of IPv6 alone",
        (meets.only_six(seen=True), meets.only_six(seen=False)),
        "rendezvous_unreachable",
    ),
    _decided(
        "sglang-5292 sgl-project/sglang/pull/5292",
        "pd_handshake",
        "a server for prefill waits for the answer to its own first request; nobody is at its bootstrap port",
        (meets.lone_prefill(seen=True), meets.lone_prefill(seen=False)),
    ),
    _decided(
        "vllm-46764 vllm-project/vllm/pull/46764",
        "slow_jit",
        "six cicc at work below a rank that waits for ninja, three ranks wait for its lock, the cache grows",
        (builds.delta_net(works=True), builds.delta_net(works=False)),
        "file_lock_held",
    ),
    _decided(
        "flashinfer-4110 flashinfer-ai/flashinfer/issues/4110",
        "slow_jit",
        "four cicc at work below the engine, which waits for ninja; the cache grows",
        (builds.cutlass_units(works=True), builds.cutlass_units(works=False)),
    ),
    _decided(
        "vllm-41834 vllm-project/vllm/pull/41834",
        "slow_jit",
        "the rank computes in Triton's compiler, elsewhere in it than ten seconds ago, and the cache grows",
        (builds.cascade(works=True), builds.cascade(works=False)),
    ),
    _decided(
        "sglang-4389 sgl-project/sglang/issues/4389",
        "stale_jit_lock",
        "eight ranks wait for torch's lock file, which is much older than they are; nobody compiles",
        (builds.rollout(left=True), builds.rollout(left=False)),
    ),
    _decided(
        "sglang-23317 sgl-project/sglang/pull/23317",
        "autotune",
        "after each rank has tuned for itself, one is in a kernel of its choice, seven register a buffer",
        (builds.tactics(apart=True), builds.tactics(apart=False)),
        *APART,
        "graph_capture",
    ),
    _decided(
        "sglang-39886 sgl-project/sglang/issues/39886",
        "mismatched_collective",
        "two ranks are in a barrier of the capture, two in an all-reduce that comes after it",
        (ranks.cutoff(apart=True), ranks.cutoff(apart=False)),
        "rank_elsewhere",
        "draft_comm_init",
        "graph_capture",
    ),
    _decided(
        "vllm-28224 vllm-project/vllm/issues/28224",
        "mismatched_collective",
        "one engine is in the all-reduce of a dummy batch, the other in the one that asks whether work is left",
        (ranks.dummy_batches(apart=True), ranks.dummy_batches(apart=False)),
        "rank_elsewhere",
    ),
    _decided(
        "fastchat-3507 lm-sys/FastChat/issues/3507",
        "fork_after_cuda",
        "the forked worker has said that CUDA refuses it, and the first rank waits for it in the store",
        (ranks.chat_worker(told=True), ranks.chat_worker(told=False)),
        "program_failed",
        "rank_elsewhere",
    ),
    _decided(
        "llmcompressor-1358 vllm-project/llm-compressor/issues/1358",
        "missing_main_guard",
        "the spawned engine is below _fixup_main_from_path in the user's script, which quantises once more",
        (ranks.once_more(seen=True), ranks.once_more(seen=False)),
    ),
    _decided(
        "vllm-53960 vllm-project/vllm/issues/53960",
        "graph_replay",
        "the only rank is in the replay of a graph, and the thread that the graph waits for has nothing to do",
        (ranks.table_on_host(seen=True), ranks.table_on_host(seen=False)),
        "deadlock",
    ),
    _decided(
        "vllm-49203 vllm-project/vllm/issues/49203",
        "kernel_hang_sm",
        "the only rank waits for an event of its GPU, which is at 96 % with 17 W and without memory traffic",
        (ranks.hybrid(seen=True), ranks.hybrid(seen=False)),
    ),
    _decided(
        "unsloth-3331 unslothai/unsloth/issues/3331",
        "gpu_fault",
        "the engine hangs in the kernel in nvidia-uvm, the driver does not answer, an old engine cannot be killed",
        (ranks.spin_loop(seen=True), ranks.spin_loop(seen=False)),
        "leftover_process",
        "gpu_in_use",
    ),
    _decided(
        "swissai-125 swiss-ai/model-launch/issues/125",
        "slow_storage",
        "four ranks wait for pages of a mapped checkpoint on Lustre, 41 MiB/s each",
        (loads.capstor(waits=True), loads.capstor(waits=False)),
    ),
    _decided(
        "vllm-31726 vllm-project/vllm/issues/31726",
        "slow_storage",
        "eight ranks wait for pages from a bucket, 6 MiB/s each",
        (loads.cached_bucket(waits=True), loads.cached_bucket(waits=False)),
    ),
    _decided(
        "dsv41spark-23 MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks/issues/23",
        "memory_pressure",
        "all tasks wait for memory 84 % of the time; the driver found no pages in one piece",
        (loads.fragments(seen=True), loads.fragments(seen=False)),
        "gpu_oom_silent",
    ),
    _decided(
        "llamacpp-9820 ggml-org/llama.cpp/issues/9820",
        "slow_network_load",
        "the loader waits in send, 2.5 MiB are on their way, and 1.1 MiB/s are confirmed",
        (loads.far_backend(seen=True), loads.far_backend(seen=False)),
    ),
    _decided(
        "hfaccel-30 LetheSec/HuggingFace-Download-Accelerator/issues/30",
        "download_lock",
        "the download's threads wait for a lock of the hub cache that another process holds",
        (loads.two_downloads(seen=True), loads.two_downloads(seen=False)),
        "file_lock_held",
    ),
    _decided(
        "vllm-24060 vllm-project/vllm/issues/24060",
        "hub_network",
        "the second try to reach huggingface.co is in SYN_SENT, and the first is told to have failed",
        (loads.other_hub(seen=True), loads.other_hub(seen=False)),
    ),
    _decided(
        "gpustack-2604 gpustack/gpustack/issues/2604",
        "download_stuck",
        "the unfinished file has not grown for 43 minutes, with connections that stand",
        (loads.nearly_done(seen=True), loads.nearly_done(seen=False)),
    ),
    _decided(
        "vllm-13388 vllm-project/vllm/issues/13388",
        "resource_wait",
        "the log says that it waits for a placement group, and that no node can give what is asked",
        (loads.no_node(told=True), loads.no_node(told=False)),
    ),
    _decided(
        "odhkserve-1161 opendatahub-io/kserve/pull/1161",
        "probe_kill",
        "SIGTERM ends every process 146 s after the start, while shards are loading",
        (ends.certificate(killed=True), ends.certificate(killed=False)),
        *ENDS,
    ),
    _decided(
        "sglang-16855 sgl-project/sglang/issues/16855",
        "http_proxy",
        "the server's request to itself at 0.0.0.0 got an empty 502; a proxy is set that leaves only localhost out",
        (ends.bad_gateway(told=True), ends.bad_gateway(told=False)),
        *ENDS,
    ),
    _decided(
        "minefield-53 Blackwellboy/model-serving-minefield/pull/53",
        "leftover_process",
        "an engine of an earlier run holds GPU 0 and 102 GiB of it",
        (ends.orphan(left=True), ends.orphan(left=False)),
        *ENDS,
        "gpu_in_use",
        "model_too_large",
    ),
    _decided(
        "horovod-1191 horovod/horovod/issues/1191",
        "ulimit",
        "ibv_reg_mr fails in ranks that may lock 64 KiB and have no IPC_LOCK",
        (ends.locked_memory(told=True), ends.locked_memory(told=False)),
        "program_failed",
        "nccl_transport_bug",
    ),
    _decided(
        "truenas-5402 truenas/apps/issues/5402",
        "container_caps",
        "get_mempolicy is not permitted, in a container with a seccomp filter and without SYS_NICE",
        (ends.memory_policy(told=True), ends.memory_policy(told=False)),
        *ENDS,
        "numa_binding",
    ),
    _decided(
        "sglang-37931 sgl-project/sglang/issues/37931",
        "rank_died",
        "the kernel killed the scheduler for memory; its parent is still there and says so",
        (ends.spark_killed(seen=True), ends.spark_killed(seen=False)),
        *ENDS,
        "memory_pressure",
    ),
    *UNDECIDED,
)
