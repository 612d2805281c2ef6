"""The platform sycl: what is missing is said, and its example runs where Intel's packages are."""

from __future__ import annotations

import json
import platform as machine
import runpy
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import inline, platforms, problems
from kforge.inline import configuration
from kforge.inline.sycl import declarations, packages, rates
from kforge.platforms.kernel_sources import kernel_sources
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.simt import Simt, dialect_of
from kforge.smith.languages.simt.plan import SimtPlan
from kforge.smith.program import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXAMPLE = platforms.find("sycl").folder / "example"


@pytest.fixture
def adapter() -> Any:
    return platforms.find("sycl").adapter


@pytest.fixture
def _runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        packages.find()
    except inline.ToolchainError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "builds"))


def test_another_machine_is_told_in_one_line_what_it_needs(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "machine", lambda: "riscv64")
    assert adapter.probe() == (
        f"needs Linux on x86-64, for which Intel publishes its SYCL packages; this is {sys.platform} on riscv64"
    )


def test_without_the_packages_the_command_that_installs_them_is_named(
    adapter: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    packages._file.cache_clear()
    try:
        assert adapter.probe() == (
            "the Python package intel-sycl-rt is not installed; install it: pip install 'kforge[sycl]'"
        )
    finally:
        packages._file.cache_clear()


def test_the_doctor_says_so_too(kforge_in_process: Callable[..., Any], adapter: Any) -> None:
    if adapter.probe() is None:
        pytest.skip("there is a device")
    (report,) = json.loads(kforge_in_process("doctor", "sycl", "--json").stdout)
    assert not report["works"]
    assert report["reason"] == adapter.probe()


def test_its_example_has_a_kernel_that_can_be_called() -> None:
    (source,) = kernel_sources((EXAMPLE / "kernel.py").read_text(), "sycl")
    (kernel,) = declarations.parse(source).values()
    assert kernel.signature.name == "rms_norm"
    assert kernel.written == (False, False, True, False, False)


def test_the_built_in_generator_writes_kernels_that_can_be_called() -> None:
    problem = problems.load(EXAMPLE / "reference.py")
    program = write(problem, trace(instantiate(problem)), Simt(dialect_of("sycl")), SimtPlan()).source
    (source,) = kernel_sources(program, "sycl")
    found = declarations.parse(source)
    assert found
    assert all(f"library.{name}(" in program for name in found)


@pytest.mark.usefixtures("_runs_here")
def test_the_example_computes_and_its_launches_are_seen(adapter: Any) -> None:
    reference, program = (runpy.run_path(str(EXAMPLE / name)) for name in ("reference.py", "kernel.py"))
    model, inputs = program["ModelNew"](*reference["get_init_inputs"]()), reference["get_inputs"]()
    with torch.no_grad():
        seen = adapter.watch(lambda: [model(*inputs) for _ in range(3)])
        torch.testing.assert_close(model(*inputs), reference["Model"](*reference["get_init_inputs"]())(*inputs))
    assert [(one.name, one.launches) for one in seen.kernels] == [("rms_norm", 3)]
    assert seen.busy > 0


@pytest.mark.usefixtures("_runs_here")
def test_the_rates_of_the_device_are_measured(tmp_path: Path) -> None:
    rates.main(str(tmp_path / "rates"))
    found = json.loads((tmp_path / "rates").read_text())
    assert found["bytes_per_second"] > 0
    assert found["flops_per_second"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("_runs_here")
def test_the_doctor_verifies_its_example(kforge_in_process: Callable[..., Any], adapter: Any) -> None:
    (report,) = json.loads(kforge_in_process("doctor", "sycl", "--json").stdout)
    assert report["works"], report
    assert report["device"] == adapter.describe_device()
