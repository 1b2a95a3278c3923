"""Reports whose cases were written before anybody ran a diagnosis of them: the twelfth ones, again of servers that
nearly all are still there. Who wrote them had read neither the causes nor what is said of them, but the titles. The
logs went through the reader of each server's log, so that what counts as an error in them is what firstlight would
have kept."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.twelfth import builds, ends, links, loads, ranks, served, unknown

from firstlight.core.bundle import Bundle

GH = "https://github.com/"

FIRST_RUN = FirstRun(established=13, supported=10, missed=5, undecided=11, wrong=1)


def _decided(where: str, cause: str, shows: str, pair: tuple[Bundle, Bundle], *beside: str) -> Case:
    (id_, path), (seen, twin) = where.split(), pair
    return Case(id=id_, url=GH + path, cause=cause, shows=shows, bundle=seen, twin=twin, companions=frozenset(beside))


def _unknown(where: str, lacks: str, seen: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause="unknown", lacks=lacks, bundle=seen, companions=frozenset(beside))


ENDS = ("process_died", "rank_died", "program_failed")
APART = ("mismatched_collective", "rank_elsewhere")

CASES = (
    _decided(
        "vllm-5458 vllm-project/vllm/issues/5458",
        "nccl_p2p_pcie",
        "all ranks wait for the first all-reduce, the PCIe cards at 100 % and 76 of 450 W; IOMMU and ACS are on",
        (links.redirected(seen=True), links.redirected(seen=False)),
    ),
    _decided(
        "v100skinny-3 dnv2003/v100-skinny/issues/3",
        "custom_allreduce",
        "NCCL may not use peers, the engine's all-reduce does, over PCIe: both cards at 100 % and 47 of 250 W",
        (links.volta_pair(seen=True), links.volta_pair(seen=False)),
        "graph_capture",
        "nccl_p2p_pcie",
    ),
    _decided(
        "vllmbench-128 er0080/vllm-benchmarking/issues/128",
        "graph_replay",
        "both ranks are in cuGraphLaunch below replay, with expandable segments and NCCL's peer access",
        (links.replays(seen=True), links.replays(seen=False)),
    ),
    _decided(
        "opengpu-1118 NVIDIA/open-gpu-kernel-modules/issues/1118",
        "gpu_fault",
        "Xid 62, 45 and 119 of one GPU, marked for a reset; its rank hangs in the driver, the driver does not answer",
        (links.firmware(seen=True), links.firmware(seen=False)),
        *APART,
    ),
    _decided(
        "1cat-430 1CatAI/1Cat-vLLM/issues/430",
        "gpu_fault",
        "Xid 62 of both GPUs, both ranks and nvidia-smi hang in the driver, which does not answer",
        (links.halted(seen=True), links.halted(seen=False)),
        "custom_allreduce",
        "graph_capture",
        "leftover_process",
    ),
    _decided(
        "sglang-36943 sgl-project/sglang/issues/36943",
        "nccl_transport_bug",
        "every rank waits in ncclCommWindowRegister for a descriptor, and NCCL's threads that send them are idle",
        (links.window(seen=True), links.window(seen=False)),
        "nccl_version",
    ),
    _decided(
        "flashinfer-3186 flashinfer-ai/flashinfer/issues/3186",
        "mismatched_collective",
        "one rank registers memory below its expert kernel, the seven others are in the barrier before they do",
        (ranks.tactics(seen=True), ranks.tactics(seen=False)),
        "rank_elsewhere",
        "autotune",
        "graph_capture",
    ),
    _decided(
        "sglang-37393 sgl-project/sglang/issues/37393",
        "mismatched_collective",
        "in call 1320347 of the group one rank reduces 1140 rows, the seven others 628",
        (served.other_sizes(seen=True), served.other_sizes(seen=False)),
        "rank_elsewhere",
    ),
    _decided(
        "sglang-18421 sgl-project/sglang/issues/18421",
        "rank_died",
        "one scheduler ended with SIGABRT, the other three wait in the same place, and the server still listens",
        (served.aborted(seen=True), served.aborted(seen=False)),
        "process_died",
    ),
    _decided(
        "trtllm-14240 NVIDIA/TensorRT-LLM/pull/14240",
        "autotune",
        "one rank is past the tuner, in the next warm-up; three gather within it",
        (ranks.races_ahead(seen=True), ranks.races_ahead(seen=False)),
        *APART,
    ),
    _decided(
        "vllm-6329 vllm-project/vllm/issues/6329",
        "wrong_interface",
        "gloo connects to 172.17.0.2, of docker's bridge, which is on this machine; the other one is 192.168.1.34",
        (ranks.virtual_switch(seen=True), ranks.virtual_switch(seen=False)),
        "rendezvous_unreachable",
    ),
    _decided(
        "pytorch-58431 pytorch/pytorch/issues/58431",
        "rendezvous_unreachable",
        "every rank of this node is in SYN_SENT to the master's store",
        (ranks.no_way(seen=True), ranks.no_way(seen=False)),
    ),
    _decided(
        "sparkvllm-227 eugr/spark-vllm-docker/issues/227",
        "resource_wait",
        "the log says that it waits for a GPU on node 192.168.50.19, which no node can fulfil",
        (ranks.placement(seen=True), ranks.placement(seen=False)),
        "wrong_interface",
    ),
    _decided(
        "vllm-48031 vllm-project/vllm/issues/48031",
        "slow_jit",
        "the engine waits for ninja, three cicc compute, and the cache grows",
        (builds.cold_spark(seen=True), builds.cold_spark(seen=False)),
    ),
    _decided(
        "vllm-54529 vllm-project/vllm/pull/54529",
        "slow_jit",
        "rank 0 waits for ninja and ptxas computes; the others wait for the file lock that it holds",
        (builds.many_wait(seen=True), builds.many_wait(seen=False)),
        "file_lock_held",
        "rank_elsewhere",
    ),
    _decided(
        "sglang-26567 sgl-project/sglang/pull/26567",
        "slow_jit",
        "the second stage waits for nvcc, cicc computes and the cache grows; the other stages wait to receive",
        (served.stage_by_stage(seen=True), served.stage_by_stage(seen=False)),
        "rank_elsewhere",
    ),
    _decided(
        "sglang-3765 sgl-project/sglang/issues/3765",
        "stale_jit_lock",
        "the scheduler waits for torch's lock file, which is older than itself, and nobody compiles",
        (builds.left_behind(seen=True), builds.left_behind(seen=False)),
    ),
    _decided(
        "hami-2903 Project-HAMi/HAMi/issues/2903",
        "preload_shim",
        "the import of torch computes in dlsym of the preloaded libvgpu.so",
        (builds.shared_card(seen=True), builds.shared_card(seen=False)),
        "cpu_spin",
    ),
    _decided(
        "vllm-28381 vllm-project/vllm/issues/28381",
        "slow_storage",
        "the loader waits for pages of a file on 9P, 21 MiB/s",
        (loads.windows_drive(seen=True), loads.windows_drive(seen=False)),
    ),
    _decided(
        "vllm-2253 vllm-project/vllm/issues/2253",
        "slow_storage",
        "the loader waits for pages of a local disk, 14 MiB/s, with tasks held up for I/O 93 % of the time",
        (loads.failing_disk(seen=True), loads.failing_disk(seen=False)),
    ),
    _decided(
        "glm53spark2x-19 tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark/pull/19",
        "memory_pressure",
        "the driver is refused memory that CPU and GPU share, all tasks wait for memory 44 % of the time",
        (loads.page_cache(seen=True), loads.page_cache(seen=False)),
        "gpu_oom_silent",
    ),
    _decided(
        "pegaflow-275 novitalabs/pegaflow/pull/275",
        "host_memory_pin",
        "the server is in cuMemHostAlloc, and its log names a pool of 900 GiB",
        (loads.pool(seen=True), loads.pool(seen=False)),
    ),
    _decided(
        "odysseus-671 odysseus-dev/odysseus/issues/671",
        "hub_network",
        "four threads of the download are in SYN_SENT to port 443, and nothing has come",
        (loads.blocked_name(seen=True), loads.blocked_name(seen=False)),
        "download_stuck",
    ),
    _decided(
        "sglang-4935 sgl-project/sglang/issues/4935",
        "http_proxy",
        "a proxy is set, the exceptions lack 0.0.0.0, on which it listens; the warm-up asks again and again",
        (ends.asks_itself(seen=True), ends.asks_itself(seen=False)),
    ),
    _decided(
        "kthena-943 volcano-sh/kthena/pull/943",
        "probe_kill",
        "it was terminated from outside after 330 s (SIGTERM), while the counter of shards moved",
        (ends.impatient(seen=True), ends.impatient(seen=False)),
        *ENDS,
        "slow_storage",
        "slow_network_load",
    ),
    _decided(
        "prodstack-44 vllm-project/production-stack/issues/44",
        "shm_too_small",
        "/dev/shm has 64 MiB, and NCCL warns that a segment found no space",
        (ends.small_shm(seen=True), ends.small_shm(seen=False)),
        *ENDS,
    ),
    _decided(
        "ray-54364 ray-project/ray/issues/54364",
        "leftover_process",
        "an engine that nobody owns any more has 20 GiB of the GPU, and the new one finds too little free",
        (ends.survivor(seen=True), ends.survivor(seen=False)),
        *ENDS,
        "gpu_in_use",
    ),
    _decided(
        "sglang-15385 sgl-project/sglang/issues/15385",
        "port_in_use",
        "the second group says EADDRINUSE for port 29631, on which a rank of the first listens",
        (ends.same_port(seen=True), ends.same_port(seen=False)),
        *ENDS,
    ),
    _unknown(
        "vllm-8058 vllm-project/vllm/issues/8058",
        "any stack, and the way between the two cards",
        unknown.two_cards(),
    ),
    _unknown(
        "vllm-40604 vllm-project/vllm/issues/40604",
        "native stacks, or NCCL's own log",
        unknown.eight_blackwell(),
    ),
    _unknown("vllm-20862 vllm-project/vllm/issues/20862", "any stack, or NCCL's own log", unknown.two_blackwell()),
    _unknown(
        "sglang-4007 sgl-project/sglang/issues/4007",
        "the other node, and native stacks",
        unknown.first_of_two_nodes(),
        "graph_capture",
    ),
    _unknown("sglang-4978 sgl-project/sglang/issues/4978", "any stack, and the other node", served.after_init()),
    _unknown(
        "minefield-89 Blackwellboy/model-serving-minefield/issues/89",
        "the other node, whose rank is elsewhere",
        unknown.one_of_two_boxes(),
        "rank_elsewhere",
    ),
    _unknown("vllm-52907 vllm-project/vllm/issues/52907", "the other node", unknown.barrier()),
    _unknown("vllmcli-8 Chen-zexi/vllm-cli/issues/8", "any stack of the engine", loads.gemma()),
    _unknown(
        "strixhalo-37 kyuz0/amd-strix-halo-vllm-toolboxes/issues/37",
        "the stack of the thread that computes",
        builds.strix(),
    ),
    _unknown("trtllm-5677 NVIDIA/TensorRT-LLM/issues/5677", "any stack, and the log of the ranks", unknown.spawned()),
    _unknown(
        "gfx906-48 nlzy/vllm-gfx906/issues/48", "the stacks of the workers, and more time", unknown.old_instinct()
    ),
)
