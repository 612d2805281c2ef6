"""The platform `metal`: which of its two adapters is used, what each says, and its example."""

from __future__ import annotations

import runpy
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from tests.conftest import has_device

from kforge import inline, platforms
from kforge.errors import PlatformError
from kforge.inline.metal import compiler
from kforge.platforms import host
from kforge.platforms.metal import adapter as of_metal

if TYPE_CHECKING:
    from pathlib import Path

not_on_a_mac = pytest.mark.skipif(sys.platform == "darwin", reason="needs a machine that is not a Mac")


@pytest.fixture
def emulated() -> of_metal.Emulated:
    return of_metal.Emulated(platforms.find("metal").manifest)


@not_on_a_mac
def test_elsewhere_than_on_a_mac_kernels_are_emulated_and_that_is_said() -> None:
    adapter = platforms.find("metal").adapter
    assert adapter.probe() is None
    assert adapter.device() == "cpu"
    assert adapter.emulated() == "kernels ran in the Metal emulator on the host's processor: this machine is not a Mac"
    assert adapter.describe_device() == f"Metal emulator on {host.describe()}"
    assert adapter.versions()["clang"].split(".")[0].isdigit()
    assert platforms.at_hand().name != "metal", "what has its own device comes first"


def test_without_clang_the_command_that_installs_it_is_named(
    emulated: of_metal.Emulated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler.find_compiler.cache_clear()
    try:
        assert emulated.probe() == (
            "no clang found (looked for clang++): the Metal emulator needs it; install it: apt-get install clang"
        )
        assert "clang" not in emulated.versions()
    finally:
        compiler.find_compiler.cache_clear()


def test_on_a_mac_a_source_goes_to_torchs_own_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that there is MPS, and a function of the test is in the place of its compiler: which one is called."""
    given: list[str] = []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "compile_shader", given.append)
    inline.compile("kernel void nothing() {}", "metal")
    assert given == ["kernel void nothing() {}"]
    with pytest.raises(inline.ToolchainError, match="takes no compiler flags, got -O3"):
        inline.compile("kernel void nothing() {}", "metal", flags=["-O3"])
    monkeypatch.undo()
    assert inline.compile("kernel void nothing(device float* x) {}", "metal").nothing is not None


def test_on_a_mac_workers_may_open_its_gpu_and_are_timed() -> None:
    adapter = of_metal.OnMac(platforms.find("metal").manifest)
    assert adapter.device() == "mps"
    assert adapter.emulated() is None
    assert "AGXDeviceUserClient" in adapter.device_nodes()
    assert "com.apple.MTLCompilerService" in adapter.device_nodes()
    (missing,) = adapter.profilers()
    assert isinstance(missing, platforms.NoProfiler)
    assert "kforge profile --import" in missing.reason
    if not has_device("mps"):
        with pytest.raises(PlatformError, match="torch cannot use the device 'mps'"):
            adapter.prepare()


@not_on_a_mac
def test_its_example_is_right_in_the_emulator(emulated: of_metal.Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compile_shader", "synchronize"):  # `prepare` replaces both, and the test puts them back
        monkeypatch.setattr(torch.mps, name, getattr(torch.mps, name))
    emulated.prepare()
    folder = platforms.find("metal").folder / "example"
    reference, kernel = (runpy.run_path(str(folder / name)) for name in ("reference.py", "kernel.py"))
    model, program = reference["Model"](96), kernel["ModelNew"](96)
    x = torch.randn(5, 96)
    with torch.no_grad():
        torch.testing.assert_close(program(x).double(), model.double()(x.double()), rtol=1e-5, atol=1e-5)
