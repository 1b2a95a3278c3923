"""The compiled library for this machine, and for lesser ones that this machine can stand for."""

import platform
from collections.abc import Iterator

import pytest
import torch

from firstlight.embedded.kernels import native

MACHINES = ["native", "x86-64-v3", "x86-64"] if platform.machine() == "x86_64" else ["native"]


@pytest.fixture(autouse=True)
def one_thread_of_torch() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=MACHINES)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> native.Kernels:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FIRSTLIGHT_CACHE", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FIRSTLIGHT_KERNELS", raising=False)
        loaded = native.load(request.param)
    assert isinstance(loaded, native.Kernels), loaded
    return loaded
