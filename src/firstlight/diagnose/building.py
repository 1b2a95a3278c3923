"""Compilers and compile caches in a bundle: what the causes of just-in-time builds share. Pure."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Look, ProcessLook
from firstlight.core.vocabulary import Role
from firstlight.core.words import size
from firstlight.diagnose import where
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.storage import CACHES

WORKING_CPU = 0.05
"""Cores from which a compiler is at work."""
COMPILES = (
    r"^(?!.*(compile_wrapper|support_torch_compile))"
    r"\S*(compil|build|jit|ninja|make_cubin|make_llir|make_ptx|nvrtc|hiprtc|codegen)\S* .*"
    r"(triton|_inductor|_dynamo|flashinfer|deep_gemm|cpp_extension|tvm|tilelang|cutlass|cute|numba|jit|aiter|compilation"
    r"|cupy|warp/|/jax/|jaxlib|tensorrt|onnxruntime|deep_ep|thunderkittens|openvino|torch_xla|neuronx|habana|torchair|te_fusion)"
)
"""Not `compile_wrapper`: through it every call of a compiled model goes; nor vLLM's `_support_torch_compile`, through
which every call of its models goes, compiled or not."""
COMPILES_NATIVELY = (
    r"nvrtcCompileProgram|libnvrtc|mlir::|libtriton|llvm::|libLLVM|libnvJitLink|libnvptxcompiler"
    r"|hiprtcCompile|libhiprtc|libamd_comgr|comgr|xla::\S*[Cc]ompil|libigc|libocloc|libtvm_?(compiler)?\.so|libnvvm"
    r"|vkCreateComputePipelines|ggml_vk_(create_pipeline|load_shaders)|zeModuleCreate|clBuildProgram"
    r"|nvinfer1::builder|buildSerializedNetwork|libnvinfer_builder|miopenFind|miopen::\S*(Compil|Build|FindConv)"
)

_COMPILERS = r"(nvcc|ptxas|cicc|ninja|hipcc|clang(\+\+)?|gcc|[gc]\+\+|cc1plus|icpx|bisheng|neuronx-cc)"
BUILD_FAILED = (
    r"ninja: build stopped|^FAILED: |(nvcc|ptxas) fatal|ptxas.*(died|segmentation)|nvcc error.*died due to signal"
    rf"|error: command .*{_COMPILERS}|\b{_COMPILERS}\W.{{0,2000}}returned non-zero|signal terminated program"
    r"|Ninja build failed|Error building extension|(nv|hip)rtc: error|(NV|HIP)RTC_ERROR_COMPILATION"
    r"|\bfatal error: \S+: No such file|\bcompilation terminated\.|\bld returned \d+ exit status|cannot find -l\w+"
    r"|\bptxas (error|.*: error)|triton\.compiler\.errors\.\w+|PassManager::run failed|LLVM ERROR: Cannot select"
    r"|NVCC compilation failed|Failed to find C compiler|Internal Triton PTX codegen error"
    r"|Could not find (nvcc|CUDA installation)"
)
"""Of compilers for GPUs, of those for the host that build what starts kernels, and of those that are libraries."""


def compilers(look: Look) -> tuple[ProcessLook, ...]:
    """Compilers that were alive in a look."""
    return tuple(one for one in look.processes if one.process.role is Role.COMPILER and one.sample.state not in "ZX")


def at_work(scene: Scene) -> Iterator[Sighting]:
    """Compilers that lived through both looks and computed."""
    for one in scene.standings:
        if one.look.process.role is Role.COMPILER and one.change and one.change.cpu >= WORKING_CPU:
            name = one.look.process.name
            quote = f"{scene.name(one.pid)} ({name}) used {one.change.cpu:.0%} of a core between the looks"
            yield Sighting(shortened(quote), (one.pid,), name)


def come_and_go(scene: Scene) -> Iterator[Sighting]:
    """Compilers of the same name in both looks, and none of them the same process."""
    looks = scene.bundle.looks
    if len(looks) < 2:
        return
    first, last = compilers(looks[0]), compilers(looks[-1])
    if {one.process.id for one in first} & {one.process.id for one in last}:
        return
    for name in {one.process.name for one in first} & {one.process.name for one in last}:
        pids = tuple(one.process.id.pid for one in last if one.process.name == name)
        yield Sighting(shortened(f"{name} came and went between the looks: now pid {pids[0]}"), pids, name)


def computing(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads of processes that compute, in code that compiles."""
    busy = {one.pid for one in scene.standings if one.change and one.change.cpu >= WORKING_CPU}
    found = (*where.at(scene, COMPILES), *where.at(scene, COMPILES_NATIVELY, native=True))
    for there in found:
        if isinstance(there, Gap):
            yield there
        elif there.pid in busy and there.thread.state == "R":
            yield where.shown(scene, there)


def growing_caches(scene: Scene) -> Iterator[Sighting]:
    """Compile caches that changed between the looks."""
    for folder, grew in where.grown(scene, *CACHES):
        yield Sighting(shortened(f"{folder.path} grew by {size(max(0, grew))} between the looks"), what=folder.path)
