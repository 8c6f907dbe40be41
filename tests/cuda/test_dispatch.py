"""How updates find the CUDA kernels, and what is said where there are none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from libraries import library
from missing import missing

from fedincentive.aggregation import cuda, median, native, trimmed_mean
from fedincentive.errors import AggregationError, NativeUnavailable, SettingError

torch = library("torch")


@pytest.fixture
def installed():
    """The real module, as nvcc built it."""
    try:
        return importlib.import_module("fedincentive._cuda")
    except ImportError as error:
        missing(f"This installation has no CUDA kernels ({error}): install with FEDINCENTIVE_CUDA=1 where nvcc is.")


def on_simulator(simulated, groups, dtype, trim=1, weights=(), wide=False):
    """The simulator's device memory is the host's, so CPU tensors stand where CUDA tensors would."""
    code = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}[dtype]
    results, found = cuda.reduce_on(simulated, groups, code, wide, trim, list(weights), 0.0, 0, 0)
    assert found == (0, 0, [])
    return results


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_tensors_of_several_entries(simulated, dtype):
    generator = torch.Generator().manual_seed(0)
    groups = [
        [torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for _ in range(7)]
        for shape in ((3, 5), (), (2, 3, 4))
    ]
    for group, result in zip(groups, on_simulator(simulated, groups, dtype, trim=3), strict=True):
        assert result.dtype == group[0].dtype and result.shape == group[0].shape
        assert torch.equal(result, median(group))


def test_layouts(simulated):
    generator = torch.Generator().manual_seed(0)
    plain = [torch.randn(2, 3, 4, 5, generator=generator) for _ in range(5)]
    last = [tensor.to(memory_format=torch.channels_last) for tensor in plain]
    expanded = [torch.randn(3, 1, generator=generator).expand(3, 4) for _ in range(5)]
    mixed = [plain[0], *last[1:]]
    before = [tensor.clone() for tensor in last]
    for group in (plain, last, mixed, expanded):
        (result,) = on_simulator(simulated, [group], "float32")
        assert torch.allclose(result, trimmed_mean(group, 1), rtol=1e-6, atol=1e-7)
    assert all(torch.equal(a, b) for a, b in zip(before, last, strict=True))
    assert [tensor.data_ptr() for tensor in cuda.one_layout(torch, last)] == [tensor.data_ptr() for tensor in last]


def test_wide_results(simulated):
    group = [torch.tensor([0.1, 1.0]), torch.tensor([0.2, 2.0])]
    (result,) = on_simulator(simulated, [group], "float32", trim=0, wide=True)
    assert result.dtype == torch.float64 and result[1] == 1.5


def test_host_arrays(simulated):
    arrays = [np.asfortranarray(np.random.default_rng(i).normal(size=(40, 30))) for i in range(9)]
    output = np.empty((40, 30))
    assert cuda.reduce_arrays([arrays], [output], 1, False, 4, [], 0.0, 0, simulated) == (0, 0, [])
    assert np.array_equal(output, median(arrays))


def test_no_device_is_said_with_the_remedy(simulated, monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_SHIM_DEVICES", "0")
    with pytest.raises(NativeUnavailable, match=r"no device.*fedincentive doctor.*\.cpu\(\)"):
        on_simulator(simulated, [[torch.zeros(3)] * 3], "float32")


def test_memory_that_torch_does_not_have_is_said_with_the_remedy(simulated, monkeypatch):
    def full(size):
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")

    monkeypatch.setattr(cuda, "torch_memory", lambda device: full)
    with pytest.raises(NativeUnavailable, match=r"CUDA out of memory.*bytes\. `fedincentive doctor`.*\.cpu\(\)"):
        on_simulator(simulated, [[torch.zeros(3)] * 3], "float32")


def test_other_devices_are_refused():
    with pytest.raises(AggregationError, match="Client 1's update is on device meta; the kernels run on CPU and CUDA"):
        trimmed_mean([torch.zeros(3), torch.zeros(3, device="meta")], 0)


@pytest.mark.parametrize("text, device", [("cpu", None), ("cuda", 0), ("cuda:3", 3)])
def test_device_variable(monkeypatch, text, device):
    monkeypatch.setenv("FEDINCENTIVE_DEVICE", text)
    assert cuda.host_device() == device


def test_unknown_device_variable(monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_DEVICE", "gpu")
    with pytest.raises(SettingError, match="FEDINCENTIVE_DEVICE='gpu' is unknown"):
        median([np.zeros(3)])


def test_info_without_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedincentive._cuda", None)
    monkeypatch.delattr("fedincentive._cuda", raising=False)
    assert cuda.info()["built"] is False and native.info()["cuda"] is False
    with pytest.raises(NativeUnavailable, match="FEDINCENTIVE_CUDA=1 pip install"):
        cuda.load()


def test_the_built_module_imports_and_tells_what_it_has(installed):
    info = installed.info()
    assert all(arch in info["archs"] for arch in ("sm_75", "sm_86", "sm_90", "sm_120", "PTX"))
    assert info["runtime"] >= 12000 and native.info()["cuda"]
    assert bool(info["devices"]) != bool(info["problem"])


def test_the_built_module_says_when_there_is_no_device(installed, reduce):
    if installed.info()["devices"]:
        pytest.skip("There is a CUDA device here.")
    with pytest.raises(installed.CudaError, match=r"looking for CUDA devices failed: .* \(cudaError\w+\)") as caught:
        reduce(installed, np.zeros((3, 4), np.float32))
    if "InsufficientDriver" in str(caught.value):
        assert "needs an NVIDIA driver 5" in str(caught.value) and "or later" in str(caught.value)


def test_the_cpu_module_does_not_need_cuda(installed):
    """Only the CUDA module holds the CUDA runtime."""
    assert b"libcuda" not in Path(native.load().__file__).read_bytes()
    assert b"libcuda" in Path(installed.__file__).read_bytes()
