import importlib.util

import pytest
import torch

from kforge import platforms
from kforge.errors import PlatformError
from kforge.inline import ToolchainError
from kforge.inline.cuda import driver
from kforge.platforms import host

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture
def adapter():
    return platforms.find("triton").adapter


@pytest.fixture
def without_gpu(monkeypatch):
    def missing():
        raise ToolchainError("no NVIDIA driver found (libcuda.so.1 is not installed)")

    monkeypatch.setattr(driver, "load", missing)


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_kernels_are_interpreted_and_that_is_said(adapter):
    assert adapter.environment() == {"TRITON_INTERPRET": "1"}
    assert adapter.device() == "cpu"
    assert adapter.device_nodes() == ()
    assert adapter.describe_device() == f"Triton's interpreter on {host.describe()}"
    assert adapter.emulated() == (
        "kernels ran in Triton's interpreter on the host: no NVIDIA driver found (libcuda.so.1 is not installed)"
    )
    adapter.prepare()
    adapter.synchronize()


@pytest.mark.usefixtures("without_gpu")
def test_it_is_not_taken_where_something_else_has_its_own_device(monkeypatch):
    monkeypatch.setattr(type(platforms.find("triton").adapter), "probe", lambda self: None)
    assert platforms.at_hand().name == "cpu"


@needs_triton
@pytest.mark.slow
def test_its_example_builds_for_gpus_that_are_not_here(adapter):
    kernel = platforms.find("triton").folder / "example" / "kernel.py"
    assert adapter.build_ahead(kernel) == ("sm_90", "gfx942")


@needs_triton
@pytest.mark.slow
def test_a_program_that_does_not_build_is_one_line(adapter, tmp_path):
    example = platforms.find("triton").example
    (tmp_path / "reference.py").write_text(example.reference)
    (tmp_path / "kernel.py").write_text(example.kernel.replace("tl.sum(", "tl.no_such_function("))
    with pytest.raises(PlatformError, match=r"^kernel\.py does not build for sm_90 and gfx942: .*no_such_function"):
        adapter.build_ahead(tmp_path / "kernel.py")


def test_without_triton_nothing_is_built_ahead(adapter, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert adapter.build_ahead(platforms.find("triton").folder / "example" / "kernel.py") == ()


@pytest.mark.device("cuda")
@needs_triton
def test_its_example_is_right_on_the_device(adapter):
    assert adapter.emulated() is None
    assert adapter.environment() == {}
    assert adapter.device() == "cuda"
    platform = platforms.find("triton")
    reference = {}
    exec(platform.example.reference, reference)
    import runpy

    kernel = runpy.run_path(str(platform.folder / "example" / "kernel.py"))  # triton reads the source from the file
    model = reference["Model"](*reference["get_init_inputs"]()).cuda()
    program = kernel["ModelNew"](*reference["get_init_inputs"]()).cuda()
    with torch.no_grad():
        x = torch.randn(reference["ROWS"], reference["FEATURES"], device="cuda") + 0.5
        torch.testing.assert_close(program(x).double(), model.double()(x.double()), rtol=1e-5, atol=1e-5)
