"""The format `flashinfer`: a definition, a workload and a solution in the schema of FlashInfer-Trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kforge.errors import InputError
from kforge.export.imports import rewritten
from kforge.export.names import free_prefix, refuse_used
from kforge.export.tensors import NamedTensors
from kforge.export.writing import check_python, filled

if TYPE_CHECKING:
    from kforge.export.solution import Solution
    from kforge.records import TensorSpec

AUTHOR = "kforge"
OPERATOR = "module"
"""The `op_type` of definitions that kforge writes: a whole PyTorch module."""


def files(solution: Solution) -> dict[str, str | bytes]:
    """Return the files by relative path: `run` takes the inputs and the weights, and returns the outputs.

    Raises InputError if the problem has no tensors among its inputs or outputs, or uses the name `run`, or if the
    program cannot do without kforge.
    """
    tensors = NamedTensors.of(solution, reserved=(_helper(solution),))
    name, entry = solution.name, f"{solution.name}_{AUTHOR}"
    return {
        f"definitions/{OPERATOR}/{name}.json": _json(definition(solution, tensors)),
        f"workloads/{OPERATOR}/{name}.jsonl": json.dumps(workload(solution, tensors)) + "\n",
        f"solutions/{AUTHOR}/{OPERATOR}/{name}/{entry}.json": _json(as_solution(solution, tensors, entry)),
    }


def definition(solution: Solution, tensors: NamedTensors) -> dict[str, Any]:
    """Return the definition: every size is a constant axis, because the program was verified for these sizes only."""
    axes: dict[str, int] = {}
    described = {
        kind: {name: _described(spec, axes) for name, spec in named.items()}
        for kind, named in (("inputs", {**tensors.inputs, **tensors.weights}), ("outputs", tensors.outputs))
    }
    reference = f"{solution.problem.source}\n{filled('flashinfer/reference.py.j2', _values(solution, tensors))}"
    check_python({"definition/reference.py": reference})
    refuse_used(solution.problem.source, ("run",), "flashinfer", "problem")
    return {
        "name": solution.name,
        "op_type": OPERATOR,
        "description": f"{solution.problem.name}, written by {solution.made_by}",
        "axes": {name: {"type": "const", "value": size} for name, size in axes.items()},
        **described,
        "reference": reference,
    }


def workload(solution: Solution, tensors: NamedTensors) -> dict[str, Any]:
    """Return the workload, with random inputs."""
    inputs = {name: {"type": "random"} for name in (*tensors.inputs, *tensors.weights)}
    return {"definition": solution.name, "workload": {"uuid": solution.run, "axes": {}, "inputs": inputs}}


def as_solution(solution: Solution, tensors: NamedTensors, name: str) -> dict[str, Any]:
    """Return the solution document with all its source files: the entry point, the program, the reference, and the
    copied part of `kforge.inline`."""
    sources: dict[str, str] = {
        "main.py": filled("flashinfer/main.py.j2", _values(solution, tensors)),
        "kernel.py": rewritten(solution.candidate.source, ".inline"),
        "reference.py": solution.problem.source,
    }
    for path, content in solution.runtime.items():
        sources[f"inline/{path}"] = content.decode() or "\n"  # the schema knows no empty file
    check_python(sources)
    return {
        "name": name,
        "definition": solution.name,
        "author": AUTHOR,
        "description": "; ".join(solution.claims()),
        "spec": {
            "language": "python",
            "target_hardware": [solution.platform.manifest.device],
            "entry_point": "main.py::run",
            "dependencies": solution.packages,
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
    }


def _values(solution: Solution, tensors: NamedTensors) -> dict[str, Any]:
    if not tensors.inputs or not tensors.outputs:
        raise InputError(f"{solution.problem.name} has no tensors among its inputs or outputs")
    return {
        "helper": _helper(solution),
        "parameters": ", ".join([*tensors.inputs, *tensors.weights]),
        "inputs": f"[{', '.join(tensors.inputs)}]",
        "weights": f"{{{', '.join(f'{spec.name!r}: {name}' for name, spec in tensors.weights.items())}}}",
        "made_by": solution.made_by,
    }


def _helper(solution: Solution) -> str:
    """Return the name of the function to which `run` delegates: the only one that no parameter of `run` may have."""
    return f"{free_prefix(solution.problem.source)}_run"


def _described(spec: TensorSpec, axes: dict[str, int]) -> dict[str, Any]:
    """Return a tensor's shape by axes, one for each size, which are added to `axes`; None is the shape of a scalar."""
    for size in spec.shape:
        axes[f"n{size}"] = size
    return {"shape": [f"n{size}" for size in spec.shape], "dtype": spec.dtype}


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
