"""Reports about storage and memory."""

from msgspec.structs import replace
from tests.corpus.case import Case
from tests.corpus.surroundings import WORKER_MAIN, schedulers, sglang, vllm, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    file,
    front,
    gpu,
    host,
    line,
    place,
    process,
)

LOADING = (
    "_copy (torch/_tensor.py:900)",
    "default_weight_loader (vllm/model_executor/model_loader/weight_utils.py:1050)",
    "load_weights (vllm/model_executor/models/llama.py:420)",
    "load_model (vllm/v1/worker/gpu_model_runner.py:3600)",
    WORKER_MAIN,
)
IN_PAGE_FAULT = ("folio_wait_bit_common", "filemap_fault", "__do_fault", "handle_mm_fault")
SHARDS = "Loading safetensors checkpoint shards:  {0}% Completed | {1}/163 [{2}<5:11:07, 101.3s/it]"


def swapping(of: Bundle, pages_s: int, share: float) -> Bundle:
    """The same with pages that go to and come from swap between the looks."""
    first, last = of.looks
    before = Pressure(
        memory_some=share, memory_full=share / 2, memory_free_bytes=GB // 2, swapped_in=10_000, swapped_out=9_000
    )
    after = replace(before, swapped_in=10_000 + 10 * pages_s, swapped_out=9_000 + 10 * pages_s)
    return replace(of, looks=(replace(first, pressure=before), replace(last, pressure=after)))


def _network_disk(filesystem: str, *, held: bool, needed: int = 540, counted: bool = True) -> Bundle:
    log = [
        line(SHARDS.format(at, at * 2, "1:30:00"), source="Worker_TP0", number=0, ago_s=400 - 60 * at)
        for at in (3, 4)
    ]
    nowhere = "none: it blocks outside of any system call"
    held_up: dict[str, object] = {"state": "D", "kernel": IN_PAGE_FAULT, "syscall": nowhere}
    held_up["moves"] = Moves(faults=900, read_bytes=90 << 20)
    weights = file("/mnt/models/big/model-00004-of-00163.safetensors", filesystem=filesystem)
    return vllm(
        *workers(2, LOADING, files=[weights], **(held_up if held else {})),
        phase=Phase.WEIGHTS,
        motion=Motion.SLOW if held else Motion.STALLED,
        host=host(places=(place("weights", "/mnt/models/big", filesystem=filesystem, needed_bytes=needed * GB),)),
        log=log if counted else log[:1],
    )


def _paged_in(*, faults: bool) -> Bundle:
    """A local disk, read through mmap on a machine where that is slow."""
    stack = ["copy (llama_cpp/_internals.py:88)", "load_model_from_file (llama_cpp/model_loader.py:210)"]
    moves = Moves(faults=4000, read_bytes=60 << 20) if faults else Moves()
    return bundle(
        process(
            4000,
            "llama-server",
            stack=stack,
            state="D" if faults else "S",
            kernel=IN_PAGE_FAULT if faults else (),
            syscall="none: it blocks outside of any system call",
            moves=moves,
            ppid=1,
            files=[file("/models/big.gguf")],
        ),
        engine="generic",
        phase=Phase.WEIGHTS,
        motion=Motion.SLOW if faults else Motion.STALLED,
    )


def _swaps(pages_s: int, share: float) -> Bundle:
    made = bundle(
        front(stack=[], syscall="futex(0x55d0)"),
        process(4100, "ollama_llama_server", state="D", kernel=("folio_wait_bit_common", "do_swap_page"),
                syscall="none: it blocks outside of any system call", moves=Moves(faults=3000), memory=28 * GB),
        engine="generic",
        phase=Phase.WEIGHTS,
        motion=Motion.SLOW if pages_s else Motion.STALLED,
        host=host(memory_bytes=32 * GB, swap_bytes=64 * GB),
        log=[line("model load progress 0.98", ago_s=200), line("model load progress 1.00", ago_s=150)],
    )  # fmt: skip
    return swapping(made, pages_s, share)


def _unified(*, page: int, native: bool) -> Bundle:
    copies = ["cuMemcpyHtoDAsync_v2 (libcuda.so.1)", "?? (instanttensor.so)"] if native else []
    made = vllm(
        worker(0, ["load_tensor (instanttensor/loader.py:300)", *LOADING[2:]], native=copies, syscall="ioctl(0x1c)"),
        phase=Phase.WEIGHTS,
        host=host(memory_bytes=120 * GB, page_bytes=page, cpu_arch="aarch64"),
        gpus=(gpu(0, name="NVIDIA GB10", architecture="121", memory_total_bytes=120 * GB),),
    )
    return replace(
        made,
        looks=tuple(
            replace(look, pressure=Pressure(memory_some=0.4, memory_free_bytes=2 * GB, swapped_in=0, swapped_out=0))
            for look in made.looks
        ),
    )


def _pins(*, grows: int, native: bool) -> Bundle:
    frames = ["cudaHostRegister (libcudart.so.12)", "alloc_with_host_register (libhicache.so)"] if native else []
    stack = [
        "init_kv_buffer (sglang/srt/mem_cache/memory_pool_host.py:180)",
        "__init__ (sglang/srt/managers/cache_controller.py:250)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)",
    ]
    return sglang(
        *schedulers(
            2, stack, native=frames, syscall="ioctl(0x1c)", moves=Moves(memory_bytes=grows, locked_bytes=grows)
        ),
        phase=Phase.KV_CACHE,
        motion=Motion.SLOW if grows else Motion.STALLED,
        log=[line("Allocating 96.00 GB host memory for hierarchical KV cache.", source="TP0", number=0)],
    )


def _pins_weights(*, grows: int, native: bool) -> Bundle:
    frames = ["cudaHostAlloc (libcudart.so.12)", "ggml_cuda_host_malloc (libggml-cuda.so)"] if native else []
    return bundle(
        process(
            4000,
            "llama-server",
            native=frames,
            syscall="ioctl(0x9)",
            moves=Moves(memory_bytes=grows),
            ppid=1,
            memory=20 * GB,
        ),
        engine="generic",
        phase=Phase.WEIGHTS,
        log=[line("Allocating 33.38 GiB of pinned host memory, this can take a while...")],
    )


CASES = (
    Case(
        id="vllm-24469",
        url="https://github.com/vllm-project/vllm/pull/24469",
        cause="slow_storage",
        shows="ranks in a page fault on weights that lie on Lustre",
        bundle=_network_disk("lustre", held=True),
        twin=_network_disk("ext4", held=False, counted=False),
    ),
    Case(
        id="sglang-7469",
        url="https://github.com/sgl-project/sglang/pull/7469",
        cause="slow_storage",
        shows="ranks fetch pages of weights from a network mount",
        bundle=_network_disk("nfs4", held=True, counted=False),
        twin=_network_disk("nfs4", held=False, counted=False),
    ),
    Case(
        id="safetensors-562",
        url="https://github.com/safetensors/safetensors/issues/562",
        cause="slow_storage",
        shows="pages of weights come one by one from a network disk",
        bundle=_network_disk("fuse.gcsfuse", held=True, needed=60, counted=False),
        twin=_network_disk("ext4", held=False, needed=60, counted=False),
    ),
    Case(
        id="lms-366",
        url="https://github.com/lmstudio-ai/lms/issues/366",
        cause="slow_storage",
        shows="thousands of pages are fetched, far below the speed of the disk, while the model is loaded",
        bundle=_paged_in(faults=True),
        twin=_paged_in(faults=False),
    ),
    Case(
        id="ollama-6031",
        url="https://github.com/ollama/ollama/issues/6031",
        cause="memory_pressure",
        shows="thousands of pages a second go to swap and back while tasks wait for memory",
        bundle=_swaps(3000, 62.0),
        twin=_swaps(0, 0.0),
        companions=frozenset({"slow_storage"}),
    ),
    Case(
        id="glm53spark-230",
        url="https://github.com/MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks/pull/230",
        cause="memory_pressure",
        shows="a copy to a GPU that shares the machine's memory does not return; little of it is free",
        bundle=_unified(page=65_536, native=True),
        twin=_unified(page=4096, native=False),
    ),
    Case(
        id="sglang-26568",
        url="https://github.com/sgl-project/sglang/pull/26568",
        cause="host_memory_pin",
        shows="schedulers stand in cudaHostRegister and lock more and more",
        bundle=_pins(grows=6 * GB, native=True),
        twin=_pins(grows=0, native=False),
    ),
    Case(
        id="ik-llama-1517",
        url="https://github.com/ikawrakow/ik_llama.cpp/pull/1517",
        cause="host_memory_pin",
        shows="the server stands in cudaHostAlloc and grows",
        bundle=_pins_weights(grows=4 * GB, native=True),
        twin=_pins_weights(grows=0, native=False),
    ),
)
