"""Reports whose cases were written by somebody who had not seen how causes are found, and had run no diagnosis: the
eighth ones, all of vLLM's starts. Most of their servers ended by themselves; such a bundle holds no look.
The cause of one (a cache that may not be written) has got a name of its own since."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.eighth import ends, gpus, kills
from tests.corpus.lots.eighth import machines as live
from tests.corpus.lots.eighth import more_ends as more
from tests.corpus.lots.eighth.unknown import GH, UNDECIDED

from firstlight.core.bundle import Bundle

FIRST_RUN = FirstRun(established=9, supported=10, missed=16, undecided=14)

DIED = ("process_died", "program_failed", "rank_died")
"""What is true of every server that ended by itself, whatever the reason."""
UNKNOWN_OPTION = (
    'vllm: error: unrecognized arguments: --reasoning-config {"reasoning_start_str":"<think>","reasoning_end_str":"'
    'Answer now.</think>"}'
)
GIVEN_TWICE = "vllm: error: unrecognized arguments: serve /models/flash-awq-4bit"


def _decided(where: str, cause: str, shows: str, seen: Bundle, twin: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(
        id=id_,
        url=GH + path,
        cause=cause,
        shows=shows,
        bundle=seen,
        twin=twin,
        companions=frozenset(beside) - {cause},
    )


DECIDED = (
    _decided(
        "gpustack-4678 gpustack/gpustack/issues/4678",
        "driver_toolkit_mismatch",
        "CUDA refuses the driver with error 803",
        ends.wrong_driver(told=True),
        ends.wrong_driver(told=False),
        *DIED,
    ),
    _decided(
        "vllm-1058 vllm-project/vllm/issues/1058",
        "resource_wait",
        "a Ray Serve replica waits for its placement group to become ready",
        live.ray_replica(waits=True),
        live.ray_replica(waits=False),
    ),
    _decided(
        "vllm-9737 vllm-project/vllm/issues/9737",
        "port_in_use",
        "binding the port of a server that has just died is refused",
        ends.bind_fails(told=True),
        ends.bind_fails(told=False),
        *DIED,
    ),
    _decided(
        "gpustack-4312 gpustack/gpustack/issues/4312",
        "port_in_use",
        "binding a port is refused that another instance uses inside",
        ends.other_instance(told=True),
        ends.other_instance(told=False),
        *DIED,
    ),
    _decided(
        "vllm-8204 vllm-project/vllm/issues/8204",
        "port_in_use",
        "binding is refused, and vLLM names its own engine as the one that has the port",
        ends.own_child_binds(told=True),
        ends.own_child_binds(told=False),
        *DIED,
    ),
    _decided(
        "vllm-30855 vllm-project/vllm/issues/30855",
        "no_machine_code",
        "CUDA has no kernel image for the GPU",
        ends.no_fp4_kernel(told=True),
        ends.no_fp4_kernel(told=False),
        *DIED,
    ),
    _decided(
        "vllm-19185 vllm-project/vllm/issues/19185",
        "no_machine_code",
        "CUDA has no kernel image for the GPU",
        ends.volta(told=True),
        ends.volta(told=False),
        *DIED,
    ),
    _decided(
        "vllm-34399 vllm-project/vllm/issues/34399",
        "slow_jit",
        "the engine computes in the compiler of Inductor, and its cache grows",
        live.long_compile(works=True),
        live.long_compile(works=False),
    ),
    _decided(
        "minimaxm25-9 MiniMax-AI/MiniMax-M2.5/issues/9",
        "fabric_not_ready",
        "CUDA is refused with error 802",
        ends.no_fabric(told=True),
        ends.no_fabric(told=False),
        *DIED,
    ),
    _decided(
        "vllm-58033 vllm-project/vllm/issues/58033",
        "numa_binding",
        "sched_setaffinity refuses cores that the container does not have",
        ends.cpuset(told=True),
        ends.cpuset(told=False),
        *DIED,
    ),
    _decided(
        "vllm-6295 vllm-project/vllm/issues/6295",
        "ulimit",
        "a thread could not be made, and 4,096 processes are allowed",
        ends.few_threads(told=True),
        ends.few_threads(told=False),
        *DIED,
    ),
    _decided(
        "vllm-1432 vllm-project/vllm/issues/1432",
        "hub_network",
        "the hub is asked for, and its name does not resolve on a cluster without a way out",
        ends.no_name(told=True),
        ends.no_name(told=False),
        *DIED,
        "unresolvable_host",
    ),
    _decided(
        "vllm-5637 vllm-project/vllm/issues/5637",
        "missing_main_guard",
        "a spawned child runs the script of the user again",
        ends.no_guard(told=True),
        ends.no_guard(told=False),
        *DIED,
    ),
    _decided(
        "vllm-1395 vllm-project/vllm/pull/1395",
        "rank_died",
        "two workers were killed, and the kernel's counters tell of its OOM killer",
        kills.copies_in_memory(killed=True),
        kills.copies_in_memory(killed=False),
        *DIED,
        "memory_pressure",
    ),
    _decided(
        "vllmbackport-67 wtdcode/vllm-backport/pull/67",
        "process_died",
        "the engine was killed, and the kernel's counters tell of its OOM killer",
        kills.pins_too_much(killed=True),
        kills.pins_too_much(killed=False),
        *DIED,
        "memory_pressure",
        "model_too_large",
    ),
    _decided(
        "vllm-21960 vllm-project/vllm/issues/21960",
        "jit_build_failure",
        "ninja stopped, since there is no nvcc",
        more.no_nvcc(told=True),
        more.no_nvcc(told=False),
        *DIED,
    ),
    _decided(
        "awsneuron-1369 aws-neuron/aws-neuron-sdk/issues/1369",
        "jit_build_failure",
        "Neuron's compiler failed in one rank, the others lost it",
        more.neuron_compile(failed=True),
        more.neuron_compile(failed=False),
        *DIED,
    ),
    _decided(
        "llmd-1430 llm-d/llm-d/issues/1430",
        "not_writable",
        "Triton may not make its cache",
        more.unwritable(failed=True),
        more.unwritable(failed=False),
        *DIED,
    ),
    _decided(
        "llmdbench-83 llm-d/llm-d-benchmark/issues/83",
        "probe_kill",
        "asked to end from outside while it read weights, in Kubernetes",
        kills.probed(killed=True),
        kills.probed(killed=False),
        *DIED,
    ),
    _decided(
        "vllm-1710 vllm-project/vllm/issues/1710",
        "shm_too_small",
        "NCCL could not have shared memory, of which there are 64 MiB",
        more.tiny_shm(small=True),
        more.tiny_shm(small=False),
        *DIED,
    ),
    _decided(
        "vllm-42399 vllm-project/vllm/issues/42399",
        "option_conflict",
        "this version does not know an option",
        more.refused_options("0.20.1", UNKNOWN_OPTION),
        more.refused_options("0.20.1", ""),
        *DIED,
    ),
    _decided(
        "vllm-37133 vllm-project/vllm/issues/37133",
        "option_conflict",
        "the image gives `vllm serve` already, and it was given again",
        more.refused_options("0.17.1", GIVEN_TWICE),
        more.refused_options("0.17.1", ""),
        *DIED,
    ),
    _decided(
        "vllm-36772 vllm-project/vllm/issues/36772",
        "model_too_large",
        "19 GiB of weights go to one GPU of 12, which is full",
        more.too_large(told=True),
        more.too_large(told=False),
        *DIED,
    ),
    _decided(
        "hami-1853 Project-HAMi/HAMi/issues/1853",
        "preload_shim",
        "the crash names the preloaded library, in a call of CUDA by NCCL",
        more.shim_crashes(mapped=True),
        more.shim_crashes(mapped=False),
        *DIED,
    ),
    _decided(
        "vllm-55510 vllm-project/vllm/issues/55510",
        "gpu_in_use",
        "the memory of the GPU is taken before the server has had any",
        more.memory_taken(told=True),
        more.memory_taken(told=False),
        *DIED,
        "leftover_process",
        "gpu_memory_imbalance",
    ),
    _decided(
        "onecat-652 1CatAI/1Cat-vLLM/issues/652",
        "custom_allreduce",
        "both GPUs spin at the power of idling, and the engine's own all-reduce is the first of its ways",
        gpus.custom_reduce(used=True),
        gpus.custom_reduce(used=False),
        "kernel_hang_sm",
    ),
    _decided(
        "nccl-1788 NVIDIA/nccl/issues/1788",
        "nccl_nvls",
        "NCCL's code for NVLink multicast is refused by CUDA",
        more.multicast(told=True),
        more.multicast(told=False),
        *DIED,
        "fabric_not_ready",
    ),
    _decided(
        "vllm-7107 vllm-project/vllm/issues/7107",
        "too_few_gpus",
        "vLLM wants eight GPUs, and says that there are fewer",
        more.more_than_there_is(told=True),
        more.more_than_there_is(told=False),
        *DIED,
    ),
    _decided(
        "gpustack-3628 gpustack/gpustack/issues/3628",
        "model_not_found",
        "there is nothing at the path of the model in the container",
        more.no_mount(there=False),
        more.no_mount(there=True),
        *DIED,
    ),
    _decided(
        "vllm-42632 vllm-project/vllm/issues/42632",
        "host_memory_pin",
        "ranks register host memory with CUDA, and grow",
        live.pins(grows=True),
        live.pins(grows=False),
    ),
    _decided(
        "vllm-6319 vllm-project/vllm/issues/6319",
        "slow_storage",
        "the kernel holds the ranks for pages of weights on NFS",
        live.over_nfs(network=True),
        live.over_nfs(network=False),
        "slow_network_load",
    ),
    _decided(
        "vllm-2685 vllm-project/vllm/issues/2685",
        "ipv6",
        "vLLM asks for its own address by IPv4, and the machine has none but of IPv6",
        more.ipv6_alone(told=True),
        more.ipv6_alone(told=False),
        *DIED,
    ),
    _decided(
        "inferencex-1360 SemiAnalysisAI/InferenceX/issues/1360",
        "stale_jit_lock",
        "two ranks poll for a lock file that nobody works under",
        gpus.baton_left(left=True),
        gpus.baton_left(left=False),
    ),
    _decided(
        "miaispark-35 MiaAI-Lab/Qwen3.8-Flash-Next-Dual-DGX-Sparks/issues/35",
        "memory_pressure",
        "tasks stall for memory most of the time, and there is next to none left",
        live.full_of_pages(short=True),
        live.full_of_pages(short=False),
    ),
    _decided(
        "miaiglm-2 MiaAI-Lab/GLM-5.3-Flash-NVFP4-Dual-DGX-Spark/pull/2",
        "rank_died",
        "Ray says that it has killed the worker of the other node, for which this one waits",
        live.killed_by_ray(told=True),
        live.killed_by_ray(told=False),
        "memory_pressure",
        "process_died",
        "program_failed",
    ),
)

CASES = (*DECIDED, *UNDECIDED)
