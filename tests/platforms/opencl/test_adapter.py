"""The platform opencl, on whatever device there is: PoCL's where there is no GPU."""

import json
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.busy_machine import give_up

from kforge import inline, platforms, problems
from kforge.evaluation import Judge
from kforge.inline import configuration
from kforge.inline.opencl import rates
from kforge.platforms import Platform, elsewhere
from kforge.profiling import torch_profile
from kforge.profiling.rows import LAUNCHING
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem, Rejected

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(24):
            x = torch.sin(x)
        return x

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
from torch import nn
from kforge import inline

library = inline.compile('''
__kernel void sines(__global const float* x, __global float* out, int n) {
    const int i = get_global_id(0);
    if (i >= n) return;
    float value = x[i];
    for (int k = 0; k < 24; ++k) value = sin(value);
    out[i] = value;
}
''', "opencl")

class ModelNew(nn.Module):
    def forward(self, x):
        BODY
"""
OWN = "out = torch.empty_like(x); library.sines(x, out, x.numel(), threads=x.numel()); return out"
FIG_LEAF = """out = torch.empty(64)
        library.sines(x[:1, :64], out, 64, threads=64)
        for _ in range(24):
            x = torch.sin(x)
        return x"""


@pytest.fixture(autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache))
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=cache))


@pytest.fixture(scope="module")
def platform() -> Platform:
    return platforms.find("opencl")


def written(source: str, folder: Path) -> Problem:
    (folder / "sines.py").write_text(source)
    return problems.load(folder / "sines.py")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return written(PROBLEM, tmp_path_factory.mktemp("problem"))


def judging(platform: Platform, track: str, cache: Path) -> Judge:
    return Judge(
        platform,
        EvaluationPolicy(compile_baseline=False, track=track),
        cache=cache,
        environment={"PATH": os.environ["PATH"]},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    )


@pytest.fixture(scope="module")
def judge(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judging(platform, "custom", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


def candidate(body: str) -> Candidate:
    return Candidate(source=KERNEL.replace("BODY", body), platform="opencl")


def test_its_device_is_named_with_its_driver(platform: Platform) -> None:
    told = platform.adapter.told()
    assert platform.adapter.describe_device() == f"{told['name']} ({told['driver']})"
    assert platform.adapter.versions()["driver"] == told["driver"]
    assert platform.adapter.probe() is None
    assert platform.adapter.emulated() is None


def test_an_honest_program_is_its_own_work_on_the_named_device(judge: Judge, problem: Problem) -> None:
    found = judge.evaluate(problem, candidate(OWN))
    assert found.correct is not None, found.verdict
    assert {"library", "outputs_not_seen"}.isdisjoint(found.labels)
    assert found.receipt.device == judge.platform.adapter.describe_device()
    assert found.receipt.trace is not None
    assert found.receipt.trace.library <= 0.2 * found.receipt.trace.total


@pytest.mark.quiet
def test_a_fig_leaf_is_rejected(judge: Judge, tmp_path: Path) -> None:
    # so large that torch's work takes longer than the launch, also on a busy machine
    large = written(PROBLEM.replace("(64, 256)", "(256, 512)"), tmp_path)
    for _ in range(5):
        found = judge.evaluate(large, candidate(FIG_LEAF))
        if found.correct is None or found.correct.timing is None or found.correct.timing.comparisons[0].doubt is None:
            break  # otherwise other processes used the machine, and nothing is claimed
    else:
        give_up(f"its timing is in doubt each time: {found.verdict}")
    assert isinstance(found.verdict, Rejected), found.verdict
    assert found.verdict.rule == "library_does_the_work"


ELSEWHERE = """
from dataclasses import replace
from kforge.platforms.opencl.adapter import Adapter as OpenCL

class Adapter(OpenCL):
    def kernel_device(self):
        return replace(super().kernel_device(), in_worker=False)
"""


def test_kernels_outside_of_the_worker_are_listed_by_its_events(
    platform: Platform, problem: Problem, tmp_path: Path
) -> None:
    folder = tmp_path / "platform"
    folder.mkdir()
    (folder / "platform.toml").write_text((platform.folder / "platform.toml").read_text())
    (folder / "example").symlink_to(platform.folder / "example")
    (folder / "adapter.py").write_text(ELSEWHERE)
    with judging(platforms.load_folder(folder), "library", tmp_path / "cache") as judge:
        own = judge.evaluate(problem, candidate(OWN))
    assert own.correct is not None, own.verdict
    assert "library" not in own.labels
    assert own.receipt.trace is None or own.receipt.trace.unit == "nanoseconds"


def test_profiles_have_the_devices_own_times(platform: Platform) -> None:
    library = inline.compile(KERNEL.partition("'''")[2].partition("'''")[0], "opencl")
    x = torch.randn(1 << 16)
    out = torch.empty_like(x)
    spots, _ = torch_profile.record(lambda: library.sines(x, out, x.numel(), threads=x.numel()), calls=2)
    by_name = {spot.name: spot for spot in spots}
    assert by_name["sines"].calls == 1
    assert by_name["sines"].seconds > 0
    assert LAUNCHING in by_name


def test_the_example_computes_and_its_launches_are_seen(platform: Platform) -> None:
    reference = runpy.run_path(str(platform.folder / "example" / "reference.py"))
    program = runpy.run_path(str(platform.folder / "example" / "kernel.py"))
    model, inputs = program["ModelNew"](*reference["get_init_inputs"]()), reference["get_inputs"]()
    with torch.no_grad():
        seen = platform.adapter.watch(lambda: [model(*inputs) for _ in range(3)])
        torch.testing.assert_close(model(*inputs), reference["Model"](*reference["get_init_inputs"]())(*inputs))
    assert [(one.name, one.launches) for one in seen.kernels] == [("rms_norm", 3)]
    assert seen.busy > 0


def test_the_rates_of_the_device_are_measured(tmp_path: Path) -> None:
    rates.main(str(tmp_path / "rates"))
    found = json.loads((tmp_path / "rates").read_text())
    assert found["bytes_per_second"] > 1e8
    assert found["flops_per_second"] > 1e8


def test_intels_driver_is_found_where_its_package_puts_it(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libintelocl.so"
    library.touch()
    names = type(platform.adapter).environment.__globals__
    monkeypatch.setitem(names, "_FROM_PACKAGES", library)
    assert "OCL_ICD_VENDORS" not in platform.adapter.environment(), "the system has a driver"
    monkeypatch.setitem(names, "_VENDORS", str(tmp_path))
    assert platform.adapter.environment()["OCL_ICD_VENDORS"] == str(library)


def test_without_a_driver_the_command_that_installs_one_is_named(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    elsewhere.answer.cache_clear()
    assert platform.adapter.probe() == (
        "no OpenCL driver finds a device here; install one: apt install pocl-opencl-icd"
    )
    elsewhere.answer.cache_clear()


@pytest.mark.slow
def test_the_doctor_verifies_its_example(kforge_in_process: Callable[..., Any], platform: Platform) -> None:
    ran = kforge_in_process("doctor", "opencl", "--json")
    (report,) = json.loads(ran.stdout)
    assert report["works"], report
    assert report["device"] == platform.adapter.describe_device()
