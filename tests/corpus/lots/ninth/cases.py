"""Reports whose cases were written before anybody ran a diagnosis of them: the ninth ones, of SGLang and of other
programs than vLLM. Who wrote them had read neither the causes nor what is said of them, but their titles. The logs
went through the reader of each server's log, so that what counts as an error in them is what firstlight would have
kept. The causes of two (a missing library, an address of another machine) have got names of their own since; the
sizes of two kinds of GPU were mended."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.ninth import ends, others, stalls, unknown, waits

from firstlight.core.bundle import Bundle

GH = "https://github.com/"

FIRST_RUN = FirstRun(established=11, supported=10, missed=9, undecided=10, false=2)


def _decided(where: str, cause: str, shows: str, pair: tuple[Bundle, Bundle], *beside: str) -> Case:
    (id_, path), (seen, twin) = where.split(), pair
    return Case(id=id_, url=GH + path, cause=cause, shows=shows, bundle=seen, twin=twin, companions=frozenset(beside))


def _unknown(where: str, lacks: str, seen: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause="unknown", lacks=lacks, bundle=seen, companions=frozenset(beside))


ENDS = ("process_died", "rank_died", "program_failed")

CASES = (
    _decided(
        "sglang-27368 sgl-project/sglang/issues/27368",
        "numa_binding",
        "numactl could not bind memory and ended before it ran Python",
        (ends.numa(refused=True), ends.numa(refused=False)),
        *ENDS,
        "container_caps",
    ),
    _decided(
        "sglang-37215 sgl-project/sglang/issues/37215",
        "port_in_use",
        "the store of a replica could not listen: EADDRINUSE",
        (ends.store_taken(told=True), ends.store_taken(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-2193 sgl-project/sglang/issues/2193",
        "http_proxy",
        "the warm-up request to itself got an empty 502, and a proxy is set without exceptions",
        (ends.proxied(told=True), ends.proxied(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-24302 sgl-project/sglang/issues/24302",
        "no_machine_code",
        "no kernel image for the device, and the kernels of sgl_kernel begin at 8.0 on a card of 7.5",
        (ends.turing(uncovered=True), ends.turing(uncovered=False)),
        *ENDS,
        "unsupported_combo",
    ),
    _decided(
        "sglang-1533 sgl-project/sglang/issues/1533",
        "gpu_memory_imbalance",
        "the server refuses unequal memory, and somebody else holds 9 GiB of one card",
        (ends.unequal(told=True), ends.unequal(told=False)),
        *ENDS,
        "gpu_in_use",
    ),
    _decided(
        "sglang-4330 sgl-project/sglang/issues/4330",
        "model_too_large",
        "nothing is left for the KV cache after model and drafter",
        (ends.no_room(told=True), ends.no_room(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-10951 sgl-project/sglang/issues/10951",
        "broken_installation",
        "a shared library is missing at import",
        (ends.no_nvrtc(told=True), ends.no_nvrtc(told=False)),
        *ENDS,
        "driver_toolkit_mismatch",
    ),
    _decided(
        "sglang-4116 sgl-project/sglang/issues/4116",
        "option_conflict",
        "the command has an option that this version does not know",
        (ends.unknown_option(told=True), ends.unknown_option(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-37806 sgl-project/sglang/pull/37806",
        "slow_storage",
        "loader threads wait for pages of a mapped checkpoint on Lustre, 18,000 faults a second for 3 MiB/s",
        (stalls.lustre(waits=True), stalls.lustre(waits=False)),
    ),
    _decided(
        "sglang-29268 sgl-project/sglang/issues/29268",
        "slow_storage",
        "one thread of each rank waits for a page from NFS within CUDA, seven wait behind it for the driver's lock",
        (stalls.driver_lock(waits=True), stalls.driver_lock(waits=False)),
        "deadlock",
    ),
    _decided(
        "sglang-6017 sgl-project/sglang/issues/6017",
        "wrong_interface",
        "NCCL was told a link-local address that every node has on an interface of its own",
        (ends.link_local(told=True), ends.link_local(told=False)),
        *ENDS,
        "nccl_rank_lost",
    ),
    _decided(
        "sglangomni-2041 sgl-project/sglang-omni/pull/2041",
        "nccl_nvls",
        "NCCL could not bind multicast memory: CUDA error 401",
        (ends.no_multicast(told=True), ends.no_multicast(told=False)),
        *ENDS,
    ),
    _decided(
        "sglang-29170 sgl-project/sglang/issues/29170",
        "slow_jit",
        "compilers at work for DeepGEMM, its cache grows",
        (stalls.deep_gemm(compiles=True), stalls.deep_gemm(compiles=False)),
    ),
    _decided(
        "sglang-39128 sgl-project/sglang/pull/39128",
        "rank_elsewhere",
        "six ranks at the barrier after loading, two still compute before it",
        (stalls.uneven_experts(uneven=True), stalls.uneven_experts(uneven=False)),
    ),
    _decided(
        "sglang-23627 sgl-project/sglang/issues/23627",
        "leftover_process",
        "schedulers of an earlier job, adopted by init, hold the cards that the new one finds full",
        (ends.orphans(left=True), ends.orphans(left=False)),
        *ENDS,
        "gpu_in_use",
    ),
    _decided(
        "sglang-13686 sgl-project/sglang/pull/13686",
        "wrong_interface",
        "a worker node binds a socket to the head's address",
        (others.foreign_bind(told=True), others.foreign_bind(told=False)),
        *ENDS,
    ),
    _decided(
        "rlinf-92 RLinf/RLinf/issues/92",
        "jit_build_failure",
        "Triton's assembler does not know the card's architecture",
        (others.old_ptxas(told=True), others.old_ptxas(told=False)),
        *ENDS,
        "no_machine_code",
        "unsupported_combo",
    ),
    _decided(
        "sglang-15235 sgl-project/sglang/issues/15235",
        "rank_died",
        "the only rank was killed while it loaded",
        (ends.killed_diffusion(told=True), ends.killed_diffusion(told=False)),
        *ENDS,
    ),
    _unknown(
        "sglang-4257 sgl-project/sglang/issues/4257",
        "a start without the engine's own all-reduce, and the way between the cards",
        unknown.first_prefill(),
        "custom_allreduce",
    ),
    _unknown(
        "sglang-3547 sgl-project/sglang/issues/3547",
        "native stacks, and those of the other node",
        unknown.four_percent(),
        "graph_capture",
    ),
    _unknown(
        "sglang-9917 sgl-project/sglang/issues/9917",
        "stacks of ranks that compute after the last shard",
        unknown.after_last_shard(),
    ),
    _unknown(
        "sglang-12289 sgl-project/sglang/issues/12289",
        "the other node, for which this one waits",
        unknown.other_node_loads(),
        "rank_elsewhere",
    ),
    _unknown(
        "sglang-3666 sgl-project/sglang/issues/3666",
        "NCCL's log, and the way between the cards",
        unknown.ada_init(),
    ),
    _unknown("sglang-14885 sgl-project/sglang/issues/14885", "any stack of the scheduler", unknown.host_pool()),
    _decided(
        "tgi-1655 huggingface/text-generation-inference/issues/1655",
        "shm_too_small",
        "a shard got SIGBUS, and /dev/shm is 64 MiB and nearly full",
        (others.bus_error(small=True), others.bus_error(small=False)),
        *ENDS,
    ),
    _decided(
        "tgi-1026 huggingface/text-generation-inference/issues/1026",
        "driver_toolkit_mismatch",
        "PTX of a newer toolchain than the driver, which is of CUDA 11.0",
        (others.old_driver(told=True), others.old_driver(told=False)),
        *ENDS,
    ),
    _decided(
        "tgi-1186 huggingface/text-generation-inference/issues/1186",
        "download_stuck",
        "connections to the hub are there and carry nothing, the unfinished file does not grow",
        (waits.no_bytes(moves=False), waits.no_bytes(moves=True)),
        "hub_network",
        "slow_network_load",
    ),
    _decided(
        "dsexamples-302 deepspeedai/DeepSpeedExamples/issues/302",
        "stale_jit_lock",
        "waits for a lock file that is older than the process, and nobody builds",
        (waits.old_baton(left=True), waits.old_baton(left=False)),
    ),
    _decided(
        "triton-5381 triton-inference-server/server/issues/5381",
        "process_died",
        "the kernel killed the model's Python process, and the server waits for its word",
        (waits.stub(killed=True), waits.stub(killed=False)),
        "rank_died",
        "memory_pressure",
        "model_too_large",
        "dead_pipe_peer",
    ),
    _decided(
        "trtllm-13564 NVIDIA/TensorRT-LLM/pull/13564",
        "mismatched_collective",
        "two ranks in a barrier that the other two never call, those ask for the free memory of all",
        (waits.prefetch(apart=True), waits.prefetch(apart=False)),
        "rank_elsewhere",
    ),
    _decided(
        "dynamo-1188 ai-dynamo/dynamo/issues/1188",
        "rendezvous_unreachable",
        "etcd refuses the connection, and nobody listens there",
        (others.no_etcd(told=True), others.no_etcd(told=False)),
        *ENDS,
    ),
    _decided(
        "awsdoeks-52 aws-samples/aws-do-eks/pull/52",
        "unresolvable_host",
        "the name of the message broker does not resolve",
        (others.nats_name(unknown=True), others.nats_name(unknown=False)),
        *ENDS,
    ),
    _decided(
        "rayllm-143 ray-project/ray-llm/issues/143",
        "resource_wait",
        "the controller says that a replica cannot be placed, and what it wants",
        (waits.no_accelerator(told=True), waits.no_accelerator(told=False)),
    ),
    _decided(
        "accelerate-508 huggingface/accelerate/issues/508",
        "port_in_use",
        "the store's port belongs to another run",
        (others.second_script(taken=True), others.second_script(taken=False)),
        *ENDS,
    ),
    _decided(
        "ktransformers-471 kvcache-ai/ktransformers/issues/471",
        "slow_storage",
        "waits for pages of a mapped checkpoint that come at 110 MiB/s",
        (waits.hard_disk(waits=True), waits.hard_disk(waits=False)),
    ),
    _decided(
        "ollama-8470 ollama/ollama/issues/8470",
        "probe_kill",
        "the server gave its runner up after five minutes, while it still moved",
        (waits.runner_given_up(killed=True), waits.runner_given_up(killed=False)),
        *ENDS,
        "slow_storage",
    ),
    _unknown(
        "lmdeploy-3993 InternLM/lmdeploy/issues/3993",
        "stacks, and a test of the way between the two cards",
        unknown.ray_pair(),
        "nccl_p2p_pcie",
    ),
    _unknown("lmdeploy-2691 InternLM/lmdeploy/issues/2691", "native stacks of the four threads", unknown.turbomind()),
    _unknown("trtllm-2172 NVIDIA/TensorRT-LLM/issues/2172", "native frames within MPI's start", unknown.mpi_import()),
    _unknown(
        "llamacpprocm-80 lemonade-sdk/llamacpp-rocm/issues/80",
        "native frames of the thread that computes",
        unknown.radeon_load(),
    ),
)
