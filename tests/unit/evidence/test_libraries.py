"""Which libraries of a process matter, by real libraries that are compiled here and by the names that engines use."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import HandClock, SystemClock
from firstlight.evidence import libraries
from firstlight.evidence.libraries import Loader, choose, is_preloaded, kind_of, libraries_of, preload_words
from firstlight.procfs import MappedFile

SITE = "/opt/app/lib/python3.12/site-packages"
compiler = shutil.which("cc")
MAPS_IT = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    area = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
time.sleep(60)
"""
needs_cc = pytest.mark.skipif(compiler is None, reason="no C compiler")


def mapped(path: str, code: bool = True) -> MappedFile:
    return MappedFile(path, "fd:00", 1, code, deleted=False)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "nccl"),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.5", "nccl"),
        (f"{SITE}/torch/lib/librccl.so", "nccl"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15", "cuda_driver"),
        (f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", "cuda_runtime"),
        (f"{SITE}/torch/lib/libcudart-a7b20f20.so.11.0", "cuda_runtime"),
        ("/usr/lib/libnvidia-ptxjitcompiler.so.570.86.15", "ptx_jit"),
        ("/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4", "mpi"),
        (f"{SITE}/sgl_kernel/common_ops.abi3.so", "kernels"),
        (f"{SITE}/vllm/_C.abi3.so", "kernels"),
        ("/workspace/vllm/vllm/_moe_C.abi3.so", "kernels"),
        (f"{SITE}/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "kernels"),
        (f"{SITE}/deep_gemm/deep_gemm_cpp.abi3.so", "kernels"),
        (f"{SITE}/torch/lib/libtorch_cuda.so", "kernels"),
        ("/root/.cache/flashinfer/0.2.6/90/cached_ops/norm/norm.so", "kernels"),
        ("/root/.triton/cache/ABC/cuda_utils.cpython-312-x86_64-linux-gnu.so", "kernels"),
        ("/tmp/torchinductor_root/kx/ckx.so", "kernels"),
        ("/home/u/.cache/torch_extensions/py312_cu128/x/x.so", "kernels"),
        ("/usr/local/vgpu/libvgpu.so", "profiler"),
        ("/opt/nvidia/nsight-systems/2025.1/target-linux-x64/libToolsInjection64.so", "profiler"),
        ("/home/u/nvbit_release/tools/mem_trace/mem_trace.so", "foreign"),
        ("/home/u/shim/libshim.so", "foreign"),
        ("/tmp/evil.so.1", "foreign"),
        (f"{SITE}/nvidia/cuda_cupti/lib/libcupti.so.12", ""),
        (f"{SITE}/numpy/core/_multiarray_umath.cpython-312-x86_64-linux-gnu.so", ""),
        (f"{SITE}/triton/_C/libtriton.so", ""),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", ""),
        ("/lib64/ld-linux-x86-64.so.2", ""),
        ("/usr/local/cuda-12.8/lib64/libcublas.so.12", ""),
        ("/opt/rocm-6.3.1/lib/libhsa-runtime64.so.1", ""),
        ("/usr/local/nvidia/lib64/libnvidia-ml.so.1", ""),
        ("/nix/store/abc-glibc-2.40/lib/libm.so.6", ""),
        ("/home/u/project/build/fast.cpython-312-x86_64-linux-gnu.so", ""),
        ("/home/u/miniconda3/lib/libstdc++.so.6", ""),
        ("/sw/cuda/12.4/lib64/libcublasLt.so.12", ""),
        ("/sgl-workspace/nvshmem/install/lib/libnvshmem_host.so.3", ""),
        ("/usr/local/ucx/lib/ucx/libuct_ib.so.0", ""),
    ],
)
def test_the_kind_of_a_library_is_told_by_where_it_lies_and_how_it_is_called(path: str, kind: str) -> None:
    assert kind_of(mapped(path), Loader(prefix="/home/u/miniconda3")) == kind


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libnccl.so.2", ""),
        ("libnccl.so.2.27.5", "2.27.5"),
        ("libcuda.so.1", ""),
        ("libcuda.so.1.1", ""),
        ("libcuda.so.570.86.15", "570.86.15"),
        ("libcudart.so.12", "12"),
        ("libcudart.so.12.8.90", "12.8.90"),
        ("libmpi.so.40.30.4", ""),
    ],
)
def test_the_number_of_an_interface_is_no_version(programs, tmp_path: Path, name: str, version: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\0" * 4096)
    process = programs.python(MAPS_IT, str(path))
    (found,) = libraries_of(process.id.pid, {}, SystemClock())
    assert found.version == version


def test_only_shared_libraries_that_may_be_executed_are_foreign() -> None:
    files = [mapped("/home/u/model.safetensors"), mapped("/home/u/x.so", code=False), mapped("/home/u/y.so")]
    assert [(one.path, kind) for one, kind in choose(files, Loader())] == [("/home/u/y.so", "foreign")]


def test_what_is_preloaded_is_known_by_path_link_and_name() -> None:
    loader = Loader(("/usr/lib/libtcmalloc.so.4", "libshim.so", "/a/b.so"))
    assert is_preloaded("/usr/lib/libtcmalloc.so.4.5.9", Loader(("/usr/lib/libtcmalloc.so",)))
    assert is_preloaded("/opt/x/libshim.so", loader)
    assert is_preloaded("/a/b.so", loader)
    assert not is_preloaded("/usr/lib/libm.so.6", loader)
    assert kind_of(mapped("/usr/lib/libtcmalloc.so.4"), loader) == "preload"


def test_what_the_driver_is_told_to_load_is_a_profiler() -> None:
    assert kind_of(mapped("/home/u/mem_trace.so"), Loader(injections=("/home/u/mem_trace.so",))) == "profiler"


def test_the_preload_file_is_read_as_the_linker_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "ld.so.preload"
    assert preload_words(file) == []
    file.write_text("/a.so:/b.so  /c.so # no\n\n/d.so\n")
    assert preload_words(file) == ["/a.so", "/b.so", "/c.so", "/d.so"]


def compiled(folder: Path, name: str, source: str) -> Path:
    assert compiler is not None
    (folder / "source.c").write_text(source)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", str(path), str(folder / "source.c")], check=True
    )
    return path


@needs_cc
def test_a_real_nccl_is_found_with_its_version_and_build(programs, tmp_path: Path) -> None:
    source = 'const char* version = "NCCL version 2.27.5+cuda12.8"; int f(void) { return 1; }'
    path = compiled(tmp_path, "nccl/lib/libnccl.so.2", source)
    process = programs.python(
        """
        import ctypes, sys, time
        ctypes.CDLL(sys.argv[1])
        print("ready", flush=True)
        time.sleep(60)
        """,
        str(path),
    )
    (found,) = (one for one in libraries_of(process.id.pid, {}, SystemClock()) if one.kind == "nccl")
    assert found.path == str(path)
    assert found.version == "2.27.5"
    assert len(found.build) == 40
    assert not found.preloaded
    assert not found.deleted


@needs_cc
def test_a_real_preload_is_found_and_told_by_whom(programs, tmp_path: Path) -> None:
    path = compiled(tmp_path, "libshim.so", "int f(void) { return 1; }")
    process = programs.command(["env", f"LD_PRELOAD={path}", "bash", "-c", "echo ready; read -r line < /dev/zero"])
    environ = procfs.environ(process.id.pid)
    (found,) = libraries_of(process.id.pid, environ, SystemClock())
    assert (found.path, found.kind, found.preloaded) == (str(path), "foreign", True)


@needs_cc
def test_a_library_that_was_replaced_on_disk_is_told_and_not_read(programs, tmp_path: Path) -> None:
    path = compiled(tmp_path, "libnccl.so.2", 'const char* v = "NCCL version 2.20.1";')
    process = programs.python(
        "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(60)", str(path)
    )
    path.unlink()
    path.write_bytes(b"another file")
    (found,) = (one for one in libraries_of(process.id.pid, {}, SystemClock()) if one.kind == "nccl")
    assert found.deleted
    assert found.path == str(path)
    assert (found.version, found.build) == ("", "")


@needs_cc
def test_a_file_is_read_once_until_it_changes(programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiled(tmp_path, "libnccl.so.2", 'const char* v = "NCCL version 2.21.5";')
    program = "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(60)"
    first, second = programs.python(program, str(path)), programs.python(program, str(path))
    opened = []
    whole = libraries.ElfFile

    def counting(path: str) -> libraries.ElfFile:
        opened.append(path)
        return whole(path)

    monkeypatch.setattr(libraries, "ElfFile", counting)
    versions = [libraries_of(one.id.pid, {}, SystemClock())[0].version for one in (first, second, first)]
    assert versions == ["2.21.5"] * 3
    assert len(opened) == 1
    os.utime(path, ns=(1, 1))
    libraries_of(first.id.pid, {}, SystemClock())
    assert len(opened) == 2


@needs_cc
def test_time_that_runs_out_is_no_answer_that_is_kept(
    tmp_path: Path, programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiled(tmp_path, "libnccl.so.2", 'const char* v = "NCCL version 2.19.3";')
    process = programs.python(
        "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(60)", str(path)
    )
    monkeypatch.setattr(libraries, "SCAN_S", 0.0)
    assert libraries_of(process.id.pid, {}, HandClock())[0].version == ""
    monkeypatch.undo()
    assert libraries_of(process.id.pid, {}, SystemClock())[0].version == "2.19.3"


def test_a_file_that_is_no_library_is_named_all_the_same(programs, tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2.18.1"
    path.write_bytes(b"\x7fELF nonsense" * 1000)
    process = programs.python(MAPS_IT, str(path))
    (found,) = libraries_of(process.id.pid, {}, SystemClock())
    assert (found.kind, found.version, found.build) == ("nccl", "2.18.1", "")
