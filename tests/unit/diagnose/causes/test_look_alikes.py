"""Stalls that show the same until one looks at what decides: who else is on the GPU, what is waited for, what is
pinned, what was said last."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu, GpuProcess
from firstlight.core.host import Topology
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    ended,
    engine,
    file,
    folder,
    front,
    gpu,
    gpus,
    helper,
    host,
    line,
    rank,
    ranks,
)

REDUCES = "all_reduce (torch/distributed/distributed_c10d.py:2900)"
WARMS_UP = "_run_autotuner_warmup (tensorrt_llm/_torch/pyexecutor/model_engine.py:640)"
MAIN = "worker_main (tensorrt_llm/executor/worker.py:250)"
TUNES = (REDUCES, "choose_one (tensorrt_llm/_torch/autotuner.py:540)", "forward (/srv/moe.py:20)", WARMS_UP, MAIN)
PAST = ("barrier (torch/distributed/distributed_c10d.py:4980)", WARMS_UP, MAIN)
MASKS = ("apply_top_k (vllm/v1/sample/ops/topk_topp_triton.py:960)", "sample (vllm/v1/sample/sampler.py:240)")
UNSEEN = Gap(what="memory activity", reason=GapReason.NOT_SUPPORTED)
SAMPLES = MASKS[1:]
LOADS = ("_copy (torch/_tensor.py:900)", "load_weights (vllm/model_executor/model_loader/weight_utils.py:500)")
BEHIND = ("rwsem_down_write_slowpath", "down_write", "os_acquire_rwlock_write", "nvidia_ioctl")
PINS = "__init__ (tensorrt_llm/runtime/_utils.py:512): drv.cuMemHostRegister(self.address, self.size, 0)"
GROWS = Moves(memory_bytes=700 << 20)
COMBINATION = "RuntimeError: disaggregation does NOT support different TP sizes for this model yet"


def _busy(**more: object) -> Gpu:
    return gpu(
        **{"index": 0, "utilisation": 100.0, "memory_activity": 0.0, "power_w": 100.0, "power_limit_w": 575.0, **more}
    )


def _masks(*cards: Gpu, stack: tuple[str, ...] = SAMPLES, cpu: float = 1.0, **more: object) -> Bundle:
    one = engine(stack=stack, state="R" if cpu else "S", cpu=cpu)
    return bundle(front(), one, helper(), gpus=cards, **{"ranks": 1, **more})


@pytest.mark.parametrize("activity", [0.0, UNSEEN], ids=["known", "untold"])
def test_a_process_alone_that_spins_above_a_busy_gpu_waits_for_its_kernel(judge, activity):
    assert judge(_masks(_busy(memory_activity=activity)), "kernel_hang_sm").word == "supported"


def test_a_process_may_sleep_until_its_kernel_is_done(judge):
    runs = ("apply (/srv/op.py:9)", "forward (/srv/model.py:20)")
    assert judge(_masks(_busy(), stack=runs, cpu=0.0), "kernel_hang_sm").word == "supported"
    waits = ("recv (zmq/sugar/socket.py:1120)", "loop (/srv/loop.py:20)")
    assert judge(_masks(_busy(), stack=waits, cpu=0.0), "kernel_hang_sm").finding is None


@pytest.mark.parametrize(
    "made",
    [
        _masks(_busy(utilisation=0.0)),
        _masks(_busy(memory_activity=40.0)),
        _masks(_busy(processes=(GpuProcess(pid=4050, here=True), GpuProcess(pid=77_000)))),
        _masks(_busy(processes=(GpuProcess(pid=4001, here=True),))),
        _masks(_busy(), stack=("compile (triton/compiler/compiler.py:320)", *SAMPLES)),
        _masks(_busy(), ranks=2, nodes=2),
        _masks(_busy(), _busy(index=1)),
    ],
    ids=["idle", "memory works", "a neighbour", "somebody else's", "compiles", "a peer", "two GPUs"],
)
def test_a_gpu_may_be_busy_for_another_reason(judge, made):
    assert judge(made, "kernel_hang_sm").finding is None


def test_kernels_of_the_engine_itself_may_hang_on_every_rank(judge):
    made = bundle(front(), ranks(2, stack=MASKS, state="R", cpu=1.0), gpus=(_busy(), _busy(index=1)))
    assert judge(made, "kernel_hang_sm").word == "supported"
    layers = ("forward (sglang/srt/layers/moe/fused_moe_triton/layer.py:90)",)
    made = bundle(front(), ranks(2, stack=layers, state="R", cpu=1.0), gpus=(_busy(), _busy(index=1)))
    assert judge(made, "kernel_hang_sm").finding is None


def _tuning(*stacks: tuple[str, ...], hits: tuple[int, ...] = (), text: str = "hit for gemm1") -> Bundle:
    said = [line(f"[autotuner.py:512] config cache {text}", number=number, ago_s=90 - number) for number in hits]
    return bundle(front(), *(rank(number, stack=stack) for number, stack in enumerate(stacks)), log=said)


def test_ranks_under_the_same_warm_up_may_be_past_the_tuner(judge):
    assert judge(_tuning(PAST, TUNES, hits=(0,)), "autotune").word == "established"
    assert judge(_tuning(PAST, TUNES), "autotune").word == "supported"
    assert judge(_tuning(PAST, TUNES, hits=(0, 1)), "autotune").word == "supported"


def test_ranks_that_all_tune_or_are_all_past_it_do_not_differ(judge):
    assert judge(_tuning(TUNES, TUNES, hits=(0,)), "autotune").finding is None
    assert judge(_tuning(PAST, PAST, hits=(0,)), "autotune").finding is None


def test_only_who_tunes_is_said_to(judge):
    assert "rank 0" not in judge(_tuning(PAST, TUNES, hits=(0,)), "autotune").title


def _pages(**pressure: float) -> Bundle:
    shard = file("/models/model-00001-of-00030.safetensors", filesystem="ext4")
    one = rank(
        0, stack=LOADS, syscall="none: it blocks outside of any system call", state="D", files=[shard],
        kernel=("folio_wait_bit_common", "filemap_fault"), moves=Moves(faults=5000, read_bytes=900 << 20),
    )  # fmt: skip
    made = bundle(front(), one, phase=Phase.WEIGHTS)
    return replace(made, looks=tuple(replace(look, pressure=Pressure(**pressure)) for look in made.looks))


def test_a_checkpoint_that_memory_does_not_hold_is_still_read_slowly(judge):
    assert judge(_pages(memory_some=21.0, io_some=88.0), "slow_storage").word == "supported"
    assert judge(_pages(memory_some=60.0, io_some=62.0), "slow_storage").word == "open"
    assert judge(_pages(memory_some=60.0), "slow_storage").word == "open"


def test_a_cache_that_took_the_memory_of_a_gpu_is_not_in_the_way_where_storage_is_what_lacks(judge):
    def spark(**pressure: float) -> Bundle:
        shared = gpus(1, name="NVIDIA GB10", memory_total_bytes=121 * GB)
        small = host(memory_bytes=121 * GB, memory_free_bytes=4 * GB)
        made = replace(_pages(memory_free_bytes=4 * GB, **pressure), host=small)
        return replace(made, looks=tuple(replace(look, gpus=shared) for look in made.looks))

    assert judge(spark(memory_some=21.0, io_some=88.0), "memory_pressure").finding is None
    assert judge(spark(memory_some=71.0, io_some=52.0), "memory_pressure").word == "supported"
    assert judge(spark(memory_some=21.0), "memory_pressure").word == "supported"


def test_tasks_that_wait_for_memory_a_third_of_the_time_tell_by_themselves(judge):
    def waits(**pressure: float) -> Bundle:
        made = bundle(front(), rank(0, stack=LOADS), phase=Phase.KV_CACHE)
        return replace(made, looks=tuple(replace(look, pressure=Pressure(**pressure)) for look in made.looks))

    assert judge(waits(memory_some=44.0), "memory_pressure").word == "supported"
    assert judge(waits(memory_some=12.0), "memory_pressure").finding is None
    assert judge(waits(memory_some=44.0, io_some=95.0), "memory_pressure").finding is None


def _pins(first: Moves, second: str = PINS, **behind: object) -> Bundle:
    told = {"state": "D", "wchan": BEHIND[0], "kernel": BEHIND, **behind}
    return bundle(front(), rank(0, stack=[PINS], state="R", moves=first), rank(1, stack=[second], **told))


def test_whoever_waits_for_a_lock_of_a_driver_that_works_has_no_broken_gpu(judge):
    assert judge(_pins(GROWS), "gpu_fault").finding is None
    assert judge(_pins(Moves()), "gpu_fault").word == "supported"
    elsewhere = "load (/srv/loader.py:9): read(path)"
    assert judge(_pins(GROWS, elsewhere), "gpu_fault").word == "supported"
    stuck = ("os_delay", "_nv042rm", "nvidia_ioctl")
    assert judge(_pins(GROWS, wchan=stuck[0], kernel=stuck), "gpu_fault").word == "supported"


@pytest.mark.parametrize(
    "code",
    [
        "drv.cuMemHostRegister(self.address, self.size, 0)",
        "torch.empty(size, dtype=torch.uint8, pin_memory=True)",
        "self.buffer = tensor.pin_memory()",
        "torch.cuda.cudart().cudaHostRegister(pointer, size, 0)",
    ],
)
def test_memory_is_pinned_by_calls_that_leave_no_frame(judge, code):
    made = bundle(front(), rank(0, stack=[f"__init__ (/srv/pool.py:12): {code}"], state="R", moves=GROWS))
    assert judge(made, "host_memory_pin").word == "established"
    outer = ["read (/srv/reader.py:3): data = handle.read()", f"__init__ (/srv/pool.py:12): {code}"]
    assert judge(bundle(front(), rank(0, stack=outer, state="R", moves=GROWS)), "host_memory_pin").finding is None


@pytest.mark.parametrize(
    "told",
    [
        {"stack": ["copy_ (torch/_tensor.py:90)", *LOADS[1:]]},
        {"stack": ["load (/srv/loader.py:9): self.weight.copy_(tensor)"]},
        {"stack": ["load (/srv/loader.py:9): tensor.to(device)"]},
        {"stack": LOADS[1:], "native": ["aclrtMemcpy (libascendcl.so)"]},
    ],
    ids=["frame", "code", "to", "native"],
)
def test_a_copy_that_spins_and_moves_nothing_waits_for_its_device(judge, told):
    def copies(cards: tuple[Gpu, ...] = (), **more: object) -> Bundle:
        one = engine(**{**told, "state": "R", "cpu": 1.0, **more})
        return bundle(front(), one, phase=Phase.WEIGHTS, gpus=cards)

    assert judge(copies(), "cpu_spin").word == "supported"
    assert judge(copies(moves=Moves(read_bytes=1 << 30)), "cpu_spin").finding is None
    assert judge(copies(moves=GROWS), "cpu_spin").finding is None
    assert judge(copies((_busy(),)), "cpu_spin").finding is None


def test_a_long_computation_is_no_copy(judge):
    one = engine(stack=["load (/srv/loader.py:9): table = sorted(words)"], state="R", cpu=1.0)
    assert judge(bundle(front(), one, phase=Phase.WEIGHTS, gpus=gpus(1)), "cpu_spin").finding is None


def _serves(*log: str, level: str = "", **more: object) -> Bundle:
    said = [line(text, ago_s=300 - at, level=level) for at, text in enumerate(log)]
    told = {"phase": Phase.SERVING, "question": "no token within 60 s", **more}
    return bundle(front(), rank(0, stack=["event_loop (/srv/loop.py:5)"]), log=said, **told)


@pytest.mark.parametrize(
    "text",
    [
        COMBINATION,
        "NotImplementedError: sliding windows on this backend",
        "ValueError: speculative decoding is not supported with pipeline parallelism",
        "AssertionError: chunked prefill cannot be used with this cache",
    ],
)
def test_a_server_may_say_that_it_does_not_support_what_it_was_given(judge, text):
    assert judge(_serves("Prefill batch", text), "unsupported_combo").word == "supported"
    assert judge(_serves("Prefill batch", text.partition(": ")[2], level="ERROR"), "unsupported_combo").word == (
        "not seen" if text.startswith("Not") else "supported"
    )
    probed = ['"GET /health HTTP/1.1" 200 OK'] * 9
    assert judge(_serves(text, *probed), "unsupported_combo").word == "supported"


@pytest.mark.parametrize(
    "made",
    [
        _serves(COMBINATION, *['"POST /v1/completions HTTP/1.1" 200 OK'] * 4),
        _serves(COMBINATION, "KeyError: 'room'"),
        _serves(COMBINATION, question=""),
        _serves(COMBINATION.partition(": ")[2]),
        _serves("OSError: [Errno 97] Address family not supported by protocol"),
        _serves("ValueError: Model architectures ['NewForCausalLM'] are not supported for now."),
        _serves("RuntimeError: CUDA error: operation not supported"),
        _serves(COMBINATION, exits=[ended(rank(1), code=1)]),
    ],
    ids=["went on", "another since", "answers", "a warning", "a socket", "a model", "a GPU", "a death"],
)
def test_what_was_got_over_or_means_something_else_is_no_combination(judge, made):
    assert judge(made, "unsupported_combo").finding is None


CAPTURES = ("capture (sglang/srt/model_executor/cuda_graph_runner.py:279)", "load (/srv/run.py:9)")


@pytest.mark.parametrize(
    ("inner", "word"),
    [
        ((), "supported"),
        (("synchronize (torch/cuda/__init__.py:985)",), "not seen"),
        (("barrier (torch/distributed/distributed_c10d.py:4980)",), "not seen"),
        (("_new_group_with_tag (torch/distributed/distributed_c10d.py:5310)",), "not seen"),
    ],
    ids=["allocates", "waits for the GPU", "meets", "rendezvous"],
)
def test_full_gpus_are_no_cause_of_who_waits_for_others(judge, inner, word):
    full = gpus(2, memory_used_bytes=80 * GB, memory_total_bytes=80 * GB)
    made = bundle(front(), ranks(2, stack=(*inner, *CAPTURES)), gpus=full)
    assert judge(made, "gpu_oom_silent").word == word


@pytest.mark.parametrize(
    ("name", "architecture", "word"),
    [
        ("NVIDIA GeForce RTX 4090", "89", "supported"),
        ("NVIDIA RTX A6000", "86", "not seen"),
        ("NVIDIA GeForce GTX 1080 Ti", "61", "not seen"),
    ],
)
def test_a_small_window_is_in_the_way_only_of_drivers_that_go_through_it(judge, name, architecture, word):
    told = {"name": name, "architecture": architecture, "memory_total_bytes": 24 * GB, "bar1_bytes": 256 << 20}
    cards = tuple(
        _busy(index=at, peers=((1 - at, "ok"),), fabric="not supported", nvlinks=0, nvlinks_down=0, **told)
        for at in range(2)
    )
    made = bundle(front(), ranks(2, stack=[REDUCES], state="R"), gpus=cards, host=host(topology=Topology()))
    assert judge(made, "nccl_p2p_pcie").word == word


def test_a_download_of_a_server_that_is_gone_is_no_slow_start(judge):
    grows = [folder("download", "/hub/models--a/blobs", bytes_=5 * GB, grows=300 << 20)]
    loads = rank(0, stack=["http_get (huggingface_hub/file_download.py:480)"])
    assert judge(bundle(front(), loads, folders=grows), "slow_network_load").word == "established"
    left = bundle(helper(ppid=1), folders=grows, exits=[ended(front(), signal=15)])
    assert judge(left, "slow_network_load").finding is None


def _chooses(first: str, *, linked: bool = False, stack: str = "synchronize (torch/cuda/__init__.py:985)") -> Bundle:
    links = {"nvlinks": 12, "nvlinks_down": 0} if linked else {"nvlinks": 0, "nvlinks_down": 0}
    cards = tuple(_busy(index=at, fabric="not supported", **links) for at in range(2))
    told = f"Using ['{first}', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of ['CUSTOM']"
    made = ranks(2, stack=[stack, "warm_up (/srv/run.py:9)"], state="R", cpu=1.0)
    return bundle(front(), made, gpus=cards, log=[line(told, number=0)])


def test_which_all_reduce_gpus_spin_in_the_engine_may_have_said(judge):
    assert judge(_chooses("CUSTOM"), "custom_allreduce").word == "supported"
    assert judge(_chooses("SYMM_MEM"), "custom_allreduce").finding is None
    assert judge(_chooses("CUSTOM", linked=True), "custom_allreduce").finding is None
    assert judge(_chooses("CUSTOM", stack="recv (/srv/loop.py:9)"), "custom_allreduce").finding is None


@pytest.mark.parametrize("code", ["return comm.allreduce(free, op=MPI.MIN)", "free = mpi_comm().allgather(free)"])
def test_a_collective_of_mpi_is_named_by_the_line_that_calls_it(judge, code):
    def apart(code: str) -> Bundle:
        asks, waits = f"free_memory (/srv/loader.py:38): {code}", "local_mpi_barrier (/srv/utils.py:655)"
        made = [
            rank(at, stack=[(asks, waits)[at % 2], "load (/srv/loader.py:90)"], state="R", cpu=1.0) for at in range(4)
        ]
        return bundle(front(), made)

    assert judge(apart(code), "mismatched_collective").word == "supported"
    assert judge(apart(code), "rank_elsewhere").finding is None
    assert judge(apart("return psutil.virtual_memory().available"), "mismatched_collective").finding is None
    assert judge(apart("return psutil.virtual_memory().available"), "rank_elsewhere").finding is not None
