"""The format `package`: an installable Python package that needs torch, and what the kernel's language needs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kforge.export.imports import rewritten
from kforge.export.writing import LICENSE, filled, one_line

if TYPE_CHECKING:
    from kforge.export.solution import Solution
    from kforge.records import TensorSpec


def files(solution: Solution) -> dict[str, str | bytes]:
    """Return the files of the package, by relative path. Raises InputError if the program cannot do without kforge."""
    package = solution.package
    values = facts(solution)
    inside = module_files(solution, values)
    return {
        "README.md": filled("package/README.md.j2", values),
        "pyproject.toml": filled("package/pyproject.toml.j2", values | {"folders": _folders(package, inside)}),
        "LICENSE": LICENSE.read_bytes(),
        "receipt.json": solution.proof.to_json(indent=2) + "\n",
        "benchmark.py": filled("package/benchmark.py.j2", values),
        "tests/test_kernel.py": filled("package/test_kernel.py.j2", values),
        **{f"{package}/{name}": content for name, content in inside.items()},
    }


def module_files(solution: Solution, values: dict[str, Any]) -> dict[str, str | bytes]:
    """Return the files of the Python package itself: the kernel, the problem, the runtime and the weights."""
    inside: dict[str, str | bytes] = {
        "__init__.py": filled("package/__init__.py.j2", values),
        "kernel.py": rewritten(solution.candidate.source, ".inline"),
        "reference.py": solution.problem.source,
        **{f"inline/{name}": content for name, content in solution.runtime.items()},
    }
    if solution.weights is not None:
        inside["state.pt"] = solution.weights.read_bytes()
    return inside


def facts(solution: Solution) -> dict[str, Any]:
    """Return what the templates tell about a solution."""
    manifest, receipt = solution.platform.manifest, solution.evaluation.receipt
    emulation = solution.emulation
    return {
        "package": solution.package,
        "title": one_line(solution.problem.name),
        "platform": one_line(manifest.title),
        "made_by": solution.made_by,
        "model": one_line(solution.model),
        "run": solution.run,
        "device": manifest.device,
        "device_name": one_line(receipt.device),
        "emulated_on": emulation[0] if emulation is not None else None,
        "emulator": emulation[1] if emulation is not None else {},
        "tolerance": repr(float(solution.verdict.tolerance)),
        "packages": solution.packages,
        "tools": [" or ".join(tool.commands) for tool in manifest.toolchain],
        "digest": solution.digest,
        "claims": [one_line(line) for line in solution.claims()],
        "replications": solution.replications,
        "labels": [one_line(label) for label in solution.evaluation.labels],
        "inputs": [_described(each) for each in solution.workload.inputs],
        "precision": receipt.precision,
        "versions": one_line(", ".join(f"{name} {version}" for name, version in receipt.versions.items())),
        "sandbox": one_line(receipt.sandbox),
        "timer": one_line(receipt.timer),
        "runtime": bool(solution.runtime),
        "weights": solution.weights is not None,
    }


def _described(tensor: TensorSpec) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"


def _folders(package: str, inside: dict[str, str | bytes]) -> list[str]:
    """Return the Python packages as setuptools names them: every folder with an `__init__.py`."""
    found = {PurePosixPath(name).parent.parts for name in inside if name.endswith("__init__.py")}
    return sorted(".".join((package, *parts)) for parts in found)
