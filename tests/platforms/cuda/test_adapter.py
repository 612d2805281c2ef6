import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kforge import platforms
from kforge.errors import PlatformError
from kforge.inline import LaunchError, ToolchainError
from kforge.inline.cuda import driver, toolkit
from kforge.platforms.nvidia import adapter as nvidia
from kforge.platforms.nvidia import memory as nvidia_memory


@pytest.fixture
def adapter():
    return platforms.find("cuda").adapter


def no_driver():
    raise ToolchainError("no NVIDIA driver found (libcuda.so.1 is not installed)")


def test_without_nvrtc_it_is_unavailable_and_builds_nothing(adapter, monkeypatch):
    def missing(newest=None):
        raise ToolchainError("no NVRTC found")

    monkeypatch.setattr(toolkit, "compiler", missing)
    assert adapter.probe() == "no NVRTC found"
    assert adapter.build_ahead(platforms.find("cuda").folder / "example" / "kernel.py") == ()
    assert "nvrtc" not in adapter.versions()


def test_without_a_gpu_it_builds_and_says_why_it_cannot_run(adapter, nvrtc, monkeypatch):
    monkeypatch.setattr(driver, "load", no_driver)
    assert adapter.probe() == "no NVIDIA driver found (libcuda.so.1 is not installed)"
    assert adapter.build_ahead(platforms.find("cuda").folder / "example" / "kernel.py") == ("sm_90",)
    assert adapter.versions()["nvrtc"] == nvrtc.version
    assert adapter.device_nodes() == ("/dev/nvidia*", "/dev/dxg")


@pytest.mark.parametrize(
    ("kilohertz", "bits", "told"),
    [
        (3_201_000, 6144, pytest.approx(4.917e12, rel=1e-3)),
        (1_215_000, 5120, pytest.approx(1.555e12, rel=1e-3)),
        (0, 0, None),
    ],
    ids=["H200", "A100", "unknown"],
)
def test_what_the_wires_to_memory_carry_is_told_by_the_driver(adapter, monkeypatch, kilohertz, bits, told):
    attributes = {driver.MEMORY_KILOHERTZ: kilohertz, driver.MEMORY_BITS: bits}
    native = SimpleNamespace(attribute=lambda _index, which: attributes[which])
    monkeypatch.setattr(driver, "load", lambda: native)
    monkeypatch.setattr(adapter, "_index", lambda: 0)
    assert adapter._wired_bytes_per_second() == told


@pytest.mark.usefixtures("nvrtc")
def test_a_program_that_does_not_build_is_one_line(adapter, tmp_path):
    wrong = tmp_path / "kernel.py"
    wrong.write_text('library = inline.compile("__global__ void f(float* x) { x[0] = missing; }", "cuda")')
    with pytest.raises(PlatformError) as caught:
        adapter.build_ahead(wrong)
    assert str(caught.value) == (
        'kernel.py does not build for sm_90: kernel.cu(1): error: identifier "missing" is undefined'
    )


@pytest.mark.usefixtures("nvrtc")
def test_the_kernel_of_the_example_checks_its_launch():
    kernel = {}
    exec(platforms.find("cuda").example.kernel, kernel)
    assert dir(kernel["library"]) == ["rms_norm"]
    assert kernel["library"].rms_norm.resources().spill_stores == 0
    with pytest.raises(
        LaunchError, match=r"^rms_norm: argument 1 \(x\) must be on a CUDA device, got a tensor on cpu$"
    ):
        kernel["ModelNew"](4)(torch.ones(2, 4))


@pytest.mark.device("cuda")
class TestOnTheDevice:
    def test_it_is_available_and_known(self, adapter):
        assert adapter.probe() is None
        assert adapter.emulated() is None
        adapter.prepare()
        assert adapter.describe_device().startswith(torch.cuda.get_device_name())
        assert set(adapter.versions()) >= {"torch", "nvrtc", "driver (CUDA)"}
        assert any(Path("/dev").glob("nvidia[0-9]*"))

    def test_a_flush_is_sized_by_the_cache(self, adapter):
        adapter.prepare()
        adapter.flush()
        adapter.flush()
        properties = torch.cuda.get_device_properties(0)
        assert adapter.flush_bytes == 3 * properties.L2_cache_size
        assert adapter._flush_buffer[-1] == 2

    def test_its_conditions_are_told(self, adapter):
        adapter.prepare()
        assert adapter.conditions().keys() >= {"clock", "memory clock", "power", "temperature", "state"}
        assert adapter.conditions()["clock"].endswith(" MHz")
        assert isinstance(adapter.limits(), tuple)
        assert re.fullmatch(r"\d+(\.\d+)+", adapter.versions()["driver"])

    def test_peaks_are_believable_and_in_order(self, adapter):
        peaks = adapter.measure_peaks()
        assert 1e11 < peaks.bytes_per_second < 2e13
        assert peaks.wired_bytes_per_second is None or peaks.bytes_per_second < peaks.wired_bytes_per_second < 2e13
        assert 1e12 < peaks.flops("strict") <= peaks.flops("tf32") <= peaks.flops("half") < 1e16
        assert torch.get_float32_matmul_precision() == "highest"

    def test_its_example_is_right(self):
        platform = platforms.find("cuda")
        reference, kernel = {}, {}
        exec(platform.example.reference, reference)
        exec(platform.example.kernel, kernel)
        model = reference["Model"](*reference["get_init_inputs"]()).cuda()
        program = kernel["ModelNew"](*reference["get_init_inputs"]()).cuda()
        torch.nn.init.normal_(model.weight)
        program.load_state_dict(model.state_dict())
        exact = model.double()
        with torch.no_grad():
            for shape in ((reference["ROWS"], reference["FEATURES"]), (2, 3, 1024), (1024,)):
                x = torch.randn(shape, device="cuda") + 0.5
                torch.testing.assert_close(program(x).double(), exact(x.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_torch_for_hosts_only_is_said(adapter, nvrtc, monkeypatch):
    monkeypatch.setattr(driver, "load", lambda: None)
    assert adapter.probe() == "there is a GPU, but this torch was built without CUDA"


def test_no_driver_is_one_line(monkeypatch):
    monkeypatch.setattr(driver, "SONAMES", ("libno_such_driver.so.1",))
    driver.load.cache_clear()
    assert nvidia.missing_device() == "no NVIDIA driver found (libno_such_driver.so.1 is not installed)"
    driver.load.cache_clear()


@pytest.mark.device("cuda")
@pytest.mark.parametrize("size", [1, nvidia_memory.PAGE + 512])
def test_memory_for_others_is_of_whole_pages(adapter, size):
    """What ends within a page is read at half the speed by who opens it (docs/decisions/027)."""
    memory = adapter.device_memory()
    flat = memory.allocate(size)
    shared = memory.export(flat.data_ptr())
    assert flat.numel() == size
    assert shared.size == -(-size // nvidia_memory.PAGE) * nvidia_memory.PAGE
