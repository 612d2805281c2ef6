"""What a problem cannot tell apart: findings about the problem itself, which label every verdict on it. (torch)

output_barely_varies    other inputs change the output by less than 1 % of its scale: a constant is nearly right
ignores_inputs          other inputs give the same output
ignores_weights         other weights give the same output
precision_blind         the reference on half-precision inputs and weights passes as strict
too_quick_to_time       a call takes less than 20 µs: what is timed is mostly the call itself
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.constants import LEAST_VARIATION, TOO_QUICK
from kforge.evaluation.reference import Reference
from kforge.evaluation.verify import compare
from kforge.problems.tensors import same, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from kforge.evaluation.verify import Truth
    from kforge.problems.instance import Instance

SEEDS = (1, 2)
"""A lint tests the problem, not a candidate: its seeds need not be secret."""


def lint(instance: Instance) -> tuple[str, ...]:
    """The findings, as labels. Raises ProblemError when the reference fails."""
    first, second = (instance.inputs(seed) for seed in SEEDS)
    reference = Reference(instance, SEEDS[0])
    truth = reference.truth(first)
    other_inputs = Reference(instance, SEEDS[0]).truth(second).own
    other_weights = Reference(instance, SEEDS[1], varied=True)  # as candidates are judged: a norm's are ones, else
    findings = {
        "ignores_inputs": same(truth.own, other_inputs),
        "output_barely_varies": _variation(truth.own, other_inputs) < LEAST_VARIATION,
        "ignores_weights": _has_weights(reference) and same(truth.own, other_weights.truth(first).own),
        "precision_blind": _is_precision_blind(instance, first, truth),
        "too_quick_to_time": _seconds(reference, first) < TOO_QUICK,
    }
    return tuple(label for label, found in findings.items() if found)


def _variation(one: Any, other: Any) -> float:
    """Largest change of any output, relative to its scale; infinite where there is nothing to measure it by."""
    changes = []
    for a, b in zip(tensors_in(one), tensors_in(other), strict=True):
        if not a.numel() or a.shape != b.shape:
            return float("inf")
        wide = torch.complex128 if a.is_complex() else torch.float64
        norm = float(torch.linalg.vector_norm(a.to(wide)))
        changes.append(float(torch.linalg.vector_norm(a.to(wide) - b.to(wide))) / norm if norm else float("inf"))
    return max(changes, default=float("inf"))


def _has_weights(reference: Reference) -> bool:
    """Weights that the constructor draws; a live module's are given, and constants are not weights."""
    given = reference.instance.problem.state_digest is not None
    return not given and any(True for _ in reference.model.parameters())


def _is_precision_blind(instance: Instance, inputs: list[Any], truth: Truth) -> bool:
    def narrow(leaf: Any) -> Any:
        rounded = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float32, torch.float64)
        return leaf.half().to(leaf.dtype) if rounded else leaf

    if not any(t.dtype in (torch.float32, torch.float64) for t in tensors_in(truth.own)):
        return False  # nothing in it could be computed at a lower precision than declared
    rough = Reference(instance, SEEDS[0])
    rough.model.load_state_dict({name: narrow(value) for name, value in rough.state().items()})
    found = compare(truth, rough.truth(pytree.tree_map(narrow, inputs)).own, "strict", "lint")
    return not isinstance(found, Mismatch)


def _seconds(reference: Reference, inputs: list[Any]) -> float:
    times = []
    with torch.no_grad():
        for _ in range(5):
            start = time.perf_counter()
            reference.model(*inputs)
            reference.instance.wait()
            times.append(time.perf_counter() - start)
    return min(times)
