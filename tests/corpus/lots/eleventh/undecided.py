"""Cases of the eleventh lot that cannot be decided by what was in sight."""

from tests.corpus.case import Case
from tests.corpus.lots.eleventh import spins, unknown

from firstlight.core.bundle import Bundle

GH = "https://github.com/"


def _unknown(where: str, lacks: str, seen: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause="unknown", lacks=lacks, bundle=seen, companions=frozenset(beside))


UNDECIDED = (
    _unknown(
        "vllm-12292 vllm-project/vllm/issues/12292",
        "a copy between two of the GPUs, tried before and after a reboot",
        unknown.heals_with_a_reboot(),
    ),
    _unknown("verl-3391 verl-project/verl/issues/3391", "the stack of the engine", unknown.never_ready()),
    _unknown(
        "lmdeploy-1755 InternLM/lmdeploy/issues/1755", "native stacks, and the PCI topology", unknown.turbomind()
    ),
    _unknown("vllm-8447 vllm-project/vllm/issues/8447", "native stacks, and the other node", unknown.stages()),
    _unknown(
        "sglang-4417 sgl-project/sglang/issues/4417",
        "native stacks, and the other node",
        unknown.drafts_capture(),
        "graph_capture",
    ),
    _unknown(
        "llamacpp-11552 ggml-org/llama.cpp/issues/11552", "the other machine's process", unknown.backend_of_nobody()
    ),
    _unknown("ascendsglang-408 Ascend/sglang/issues/408", "any stack of the ranks", unknown.mapped_on_ascend()),
    _unknown("vllm-19467 vllm-project/vllm/issues/19467", "the stack of the engine", unknown.one_of_four()),
    _unknown("vllm-50880 vllm-project/vllm/issues/50880", "any stack of the engine", spins.one_b300()),
    _unknown(
        "trtllm-1601 NVIDIA/TensorRT-LLM/issues/1601",
        "native stacks, and a start with NCCL alone",
        spins.beside_onnx(),
    ),
    _unknown(
        "sglang-31072 sgl-project/sglang/pull/31072",
        "what the stream of the idle GPU waits for, and the other node",
        spins.one_idle(),
    ),
    _unknown("sglang-33549 sgl-project/sglang/issues/33549", "any stack of the ranks", spins.long_context()),
)
