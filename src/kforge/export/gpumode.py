"""The format `gpumode`: a submission of one file, and the task that it solves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.export.imports import rewritten
from kforge.export.names import free_prefix, refuse_used
from kforge.export.one_file import one_file
from kforge.export.tensors import NamedTensors
from kforge.export.writing import filled, one_line

if TYPE_CHECKING:
    from kforge.export.solution import Solution

IN_SUBMISSION = ("custom_kernel", "input_t", "output_t")
IN_REFERENCE = ("generate_input", "ref_kernel", "check_implementation")
"""Names that the format demands, and that are defined after the program and after the problem."""


def files(solution: Solution) -> dict[str, str | bytes]:
    """Return `submission.py` with `custom_kernel`, and `task.py`, `task.yml` and `reference.py` of its task.

    The data of a call are the inputs, followed by the weights. Raises InputError if the program cannot do without
    kforge, or if a source uses one of the names that the format demands.
    """
    values = _values(solution)
    refuse_used(solution.candidate.source, IN_SUBMISSION, "gpumode", "program")
    refuse_used(solution.problem.source, IN_REFERENCE, "gpumode", "problem")
    reference = filled("gpumode/reference.py.j2", values)
    return {
        "submission.py": f"{one_file(solution)}\n{filled('gpumode/submission.py.j2', values)}",
        "reference.py": f"{rewritten(solution.problem.source, '.inline')}\n{reference}",
        "task.py": filled("gpumode/task.py.j2", values),
        "task.yml": filled("gpumode/task.yml.j2", values),
    }


def _values(solution: Solution) -> dict[str, Any]:
    tensors = NamedTensors.of(solution)
    return {
        "prefix": free_prefix(solution.problem.source, solution.candidate.source),
        "title": one_line(solution.problem.name),
        "made_by": solution.made_by,
        "claims": [one_line(line) for line in solution.claims()],
        "device": solution.platform.manifest.device,
        "inputs": len(tensors.inputs),
        "weights": [spec.name for spec in tensors.weights.values()],
        "tolerance": repr(float(solution.verdict.tolerance)),
    }
