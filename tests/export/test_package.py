"""An exported package passes its own tests where there is torch and no kforge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.export.conftest import example

from kforge import platforms
from kforge.errors import InputError
from kforge.export import export
from kforge.export.writing import LICENSE
from kforge.records import Proof

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.export import Solution

ROOT = Path(__file__).resolve().parents[2]
RUNS_HERE = ("cpu", "metal", "opencl", "triton", "webgpu")
"""Platforms whose programs run on a machine without a GPU, some of them in an emulator."""
WRONG = ("return out", "return out * 1.001")
"""A change of the example that makes its outputs wrong by a thousandth."""


def on_the_runtime(platform: str) -> str:
    """The platform's example, which gets its emulator from the runtime where a worker would provide it."""
    program = example(platform, "kernel.py")
    called = "torch.mps.compile_shader("
    if called not in program:
        return program
    program = program.replace(called, "inline.compile(").replace('\n""")', f'\n""", "{platform}")')
    return f"from kforge import inline\n{program}"


def test_packages_pass_their_tests_with_torch_only(
    solved: Callable[..., Solution], clean_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    here = [name for name in RUNS_HERE if platforms.find(name).adapter.probe() is None]
    assert "cpu" in here
    also: set[str] = set()
    for name in here:
        solution = solved(name, name=f"Norm {name}", program=on_the_runtime(name))
        export(solution, tmp_path / "out" / f"for_{name}")
        also |= set(solution.packages)
    wrong = solved("cpu", name="Wrong", program=example("cpu", "kernel.py").replace(*WRONG))
    export(wrong, tmp_path / "out" / "for_wrong")
    folders = [tmp_path / "out" / f"for_{name}" for name in (*here, "wrong")]
    done = clean_python(
        "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null",
        "-o", f"pythonpath={' '.join(map(str, folders))}",
        *(str(folder / "tests") for folder in folders),
        cwd=tmp_path / "out", also=(*also, "numpy"),  # for Triton's interpreter
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert f"5 failed, {6 * len(here) + 1} passed" in said, said
    assert "kforge.inline" not in said


BENCHMARKED = re.compile(
    r"eager ([\d.]+) µs, kernel ([\d.]+) µs: ([\d.]+)x "
    r"\(the median of 15 pairs, which are from ([\d.]+)x to ([\d.]+)x\)"
)


@pytest.mark.parametrize(("form", "place"), [("package", "benchmark.py"), ("hf-kernels", "benchmarks/benchmark.py")])
def test_the_benchmark_prints_the_times_of_the_pair_with_the_median_ratio(
    solved: Callable[..., Solution], tmp_path: Path, form: str, place: str
) -> None:
    """Cause: the times were medians of each side alone, and did not give the ratio; one format printed no ratio."""
    if form == "hf-kernels":
        pytest.importorskip("kernels")
    export(solved("cpu"), tmp_path / "out", form)
    script = tmp_path / "out" / place
    script.write_text(script.read_text().replace("BLOCK, PAIRS = 0.05,", "BLOCK, PAIRS = 0.002,"))
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = BENCHMARKED.fullmatch(done.stdout.strip())
    assert found is not None, done.stdout
    eager, kernel, ratio, low, high = map(float, found.groups())
    assert ratio == pytest.approx(eager / kernel, rel=0.02)
    assert low <= ratio <= high


def test_a_package_holds_what_a_user_needs(solved: Callable[..., Solution], tmp_path: Path) -> None:
    solution = solved("cpu", name="RMSNorm 2")
    written = export(solution, tmp_path / "out")
    names = {path.relative_to(tmp_path / "out").as_posix() for path in written}
    assert {"README.md", "LICENSE", "pyproject.toml", "receipt.json", "benchmark.py", "tests/test_kernel.py"} <= names
    assert {"rms_norm_2_kernel/kernel.py", "rms_norm_2_kernel/inline/cxx.py"} <= names
    assert all(path.is_file() for path in written)
    project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == ["torch"]
    assert project["tool"]["setuptools"]["packages"] == [
        "rms_norm_2_kernel",
        "rms_norm_2_kernel.inline",
        "rms_norm_2_kernel.inline.headers",
    ]
    readme = (tmp_path / "out" / "README.md").read_text()
    assert solution.digest in readme
    assert "2.00x over eager (95 % interval 1.90 to 2.10): faster" in readme
    proof = Proof.model_validate(json.loads((tmp_path / "out" / "receipt.json").read_text()))
    assert (proof.candidate, proof.evaluation) == (solution.candidate, solution.first)


@pytest.mark.parametrize("platform", sorted({"cuda", "hip", "null", "pallas", "sycl"}))
def test_programs_of_other_platforms_are_exported(
    solved: Callable[..., Solution], tmp_path: Path, platform: str
) -> None:
    solution = solved(platform)
    export(solution, tmp_path / "out")
    kernel = (tmp_path / "out" / solution.package / "kernel.py").read_text()
    compile(kernel, "kernel.py", "exec")
    assert ("from . import inline" in kernel) == ("kforge" in solution.candidate.source)


def test_a_cuda_package_builds_without_a_device(
    solved: Callable[..., Solution], clean_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    pytest.importorskip("nvidia.cu13")
    export(solved("cuda"), tmp_path / "out")
    done = clean_python("rms_norm_kernel.kernel", cwd=tmp_path / "out", also=("nvidia-cuda-nvrtc",))
    assert done.returncode == 0, done.stderr


def test_names_of_others_cannot_break_a_file(solved: Callable[..., Solution], tmp_path: Path) -> None:
    solution = solved("cpu", name='x"""\n\\ import os {{ 7 * 7 }} [tool]')
    export(solution, tmp_path / "out")
    tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    for file in ("benchmark.py", "tests/test_kernel.py", f"{solution.package}/__init__.py"):
        compile((tmp_path / "out" / file).read_text(), file, "exec")
    assert "{{ 7 * 7 }}" in (tmp_path / "out" / "README.md").read_text()


def test_weights_of_a_live_module_go_along(solved: Callable[..., Solution], tmp_path: Path) -> None:
    import dataclasses

    weights = tmp_path / "state.pt"
    weights.write_bytes(b"weights")
    export(dataclasses.replace(solved("cpu"), weights=weights), tmp_path / "out")
    assert (tmp_path / "out" / "rms_norm_kernel" / "state.pt").read_bytes() == b"weights"


def test_a_folder_with_files_is_refused(solved: Callable[..., Solution], tmp_path: Path) -> None:
    solution = solved("cpu")
    (tmp_path / "out").mkdir()
    export(solution, tmp_path / "out")
    with pytest.raises(InputError, match="not an empty folder"):
        export(solution, tmp_path / "out")
    with pytest.raises(InputError, match="there is no format 'none'"):
        export(solution, tmp_path / "other", "none")


def test_the_licence_of_a_package_is_that_of_kforge() -> None:
    assert LICENSE.read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.volume
def test_a_package_installs_into_a_fresh_environment(solved: Callable[..., Solution], tmp_path: Path) -> None:
    """Cause: a package that works in its folder may lack files once it is installed."""
    export(solved("cpu"), tmp_path / "out")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, "torch", "pytest", "setuptools"], check=True, timeout=280)
    subprocess.run([*install, "--no-build-isolation", "--no-deps", tmp_path / "out"], check=True, timeout=120)
    (tmp_path / "out" / "rms_norm_kernel").rename(tmp_path / "away")
    done = subprocess.run(
        [python, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path / "out", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "6 passed" in done.stdout, done.stdout
