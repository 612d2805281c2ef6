"""Finds weaknesses of a problem, by which a wrong program could pass. They label every verdict on the problem. (torch)

output_barely_varies    other inputs change the output by less than 1 % of its scale: a constant is nearly right
ignores_inputs          other inputs give the same output
ignores_weights         other weights give the same output
constant_passes         zeros, one number, one number for each row, or the output for other inputs counts as right
input_passes            an input that is returned unchanged counts as right
precision_blind         the reference on half-precision inputs and weights passes as strict
too_quick_to_time       a call takes less than 20 µs: what is timed is mostly the call itself

If a constant or an input passes, a passing program need not have computed anything, so no speedup is claimed. These
tests use the comparison that judges candidates, on inputs as given.
"""

from __future__ import annotations

import copy
import math
import time
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import compare
from kforge.evaluation.comparison.overflow import overflows
from kforge.evaluation.constants import FAST_ERROR_FACTOR, FAST_FLOOR, FLOORS, LEAST_VARIATION, TOO_QUICK
from kforge.evaluation.correctness.rounding import any_share_may_be_off, excused
from kforge.evaluation.reference.reference import Reference
from kforge.problems.inputs.distributions import DISTRIBUTIONS
from kforge.problems.tensors import cloned, same, spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kforge.evaluation.comparison.comparison import Truth
    from kforge.problems.instance import Instance

CLAIMS_NOTHING = MappingProxyType(
    {
        "constant_passes": "a constant passes as right on this problem",
        "input_passes": "an input that is returned unchanged passes as right on this problem",
        "repacked_weights": (
            "the program keeps its weights in another form than the reference, so it was judged with weights as "
            "constructed only; keep the names and shapes of the reference's state_dict"
        ),
    }
)
"""Labels of problems and programs with which no speedup is claimed, with the reason that users see."""
OTHER_KINDS = ("shifted", "large", "mixed_scale")
"""Input distributions on which a constant or an input must also pass, before the problem gets its label."""
SAMPLED = 1 << 16
"""Most elements of an output that are sampled to see quickly that a constant is wrong, before all elements are
compared."""
SEEDS = (1, 2)
"""Random seeds. They need not be secret, because this tests the problem and no candidate."""


def lint(instance: Instance) -> tuple[str, ...]:
    """Return the labels of a problem's weaknesses. Raises ProblemError if the reference fails."""
    first, second = (instance.inputs(seed) for seed in SEEDS)
    reference = Reference(instance, SEEDS[0])
    truth = reference.truth(first)
    other_inputs = Reference(instance, SEEDS[0]).truth(second).own
    other_weights = Reference(instance, SEEDS[1], varied=True)  # as candidates are judged; otherwise a norm's are ones
    other_truth = other_weights.truth(first)
    findings = {
        "ignores_inputs": same(truth.own, other_inputs),
        "output_barely_varies": _variation(truth.own, other_inputs) < LEAST_VARIATION,
        "ignores_weights": _has_weights(reference) and same(truth.own, other_truth.own),
        "constant_passes": _constant_passes(other_weights, other_truth, first, second),
        "input_passes": _input_passes(other_weights, other_truth, first),
        "precision_blind": _is_precision_blind(instance, first, truth),
        "too_quick_to_time": _seconds(reference, first) < TOO_QUICK,
    }
    return tuple(label for label, found in findings.items() if found)


def voids_speed(labels: Sequence[str]) -> str | None:
    """Return why no speedup is claimed with these labels; None if one may be claimed."""
    return next((reason for label, reason in CLAIMS_NOTHING.items() if label in labels), None)


def _passing(reference: Reference, truth: Truth, outputs: Iterable[Any], *, as_given: bool) -> list[Any]:
    """Return those of the outputs that the comparison for candidates accepts as right."""
    return [output for output in outputs if _counts_as_right(reference, truth, output, as_given)]


def _counts_as_right(reference: Reference, truth: Truth, output: Any, as_given: bool) -> bool:
    if not any_share_may_be_off(reference, truth.inputs) and _is_far_off(truth, output):
        return False
    # without slices: a constant that is wrong in only a few slices is close to what a program could pass with
    found = compare(truth, output, "strict", "lint", local=as_given, slices=False)
    if isinstance(found, Mismatch) and found.kind == "numerical":
        return excused(reference, truth, output, "strict", local=as_given, slices=False) is not None
    return not isinstance(found, Mismatch)


def _is_far_off(truth: Truth, output: Any) -> bool:
    """Return whether a sample shows that more than half of the elements are wrong. This is quick, and true of most
    constants."""
    for exact, own, got in zip(*(map(tensors_in, (truth.exact, truth.own, output))), strict=True):
        if own.shape != got.shape:
            return True
        if not own.is_floating_point() or not own.numel():
            continue
        generator = torch.Generator().manual_seed(SEEDS[0])
        some = torch.randint(own.numel(), (min(own.numel(), SAMPLED),), generator=generator).to(own.device)
        ours, right = own.reshape(-1)[some].double(), exact.reshape(-1)[some].double()
        scale = right.abs().clamp(min=float(right.square().mean().sqrt()))
        worst = float(((ours - right).abs() / scale).max())
        limit = max(FAST_FLOOR * FLOORS["strict"][spec(own).dtype], FAST_ERROR_FACTOR * worst)
        off = (got.reshape(-1)[some].double() - right).abs() > limit * scale
        if math.isfinite(limit) and float(off.double().mean()) > 0.5:
            return True
    return False


def _constants(other: Any) -> list[Any]:
    """Return outputs that need no inputs: zeros, means, and `other`, which is the output for other inputs."""

    def mean(leaf: torch.Tensor) -> torch.Tensor:
        return _wide(leaf).mean()

    def mean_of_rows(leaf: torch.Tensor) -> torch.Tensor:
        return _wide(leaf).mean(dim=-1, keepdim=True) if leaf.dim() else leaf

    def filled(leaf: Any, value: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        return value(leaf).to(leaf.dtype).expand(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf

    kinds: list[Callable[[torch.Tensor], torch.Tensor]] = [torch.zeros_like, mean, mean_of_rows, lambda leaf: leaf]
    if not all(leaf.is_floating_point() or leaf.is_complex() for leaf in tensors_in(other)):
        kinds = [torch.zeros_like, lambda leaf: leaf]  # judging an index by its score takes two calls of the reference
    return [pytree.tree_map(partial(filled, value=kind), other) for kind in kinds]


def _inputs_like(own: Any, inputs: list[Any]) -> list[torch.Tensor]:
    """Return the inputs that have the shape and dtype of the output."""
    if not isinstance(own, torch.Tensor):
        return []
    return [each for each in tensors_in(inputs) if each.shape == own.shape and each.dtype == own.dtype]


def _constant_passes(reference: Reference, truth: Truth, inputs: list[Any], others: list[Any]) -> bool:
    other = reference.own_result(cloned(others), copy.deepcopy(reference.model))
    passing = _passing(reference, truth, _constants(other), as_given=True)
    for drawn in _other_truths(reference, inputs) if passing else ():
        passing = _passing(reference, drawn, passing, as_given=False)
    return bool(passing)


def _input_passes(reference: Reference, truth: Truth, inputs: list[Any]) -> bool:
    def passes(each: Truth) -> bool:
        return bool(_passing(reference, each, _inputs_like(each.own, each.inputs), as_given=each is truth))

    return passes(truth) and all(map(passes, _other_truths(reference, inputs)))


def _other_truths(reference: Reference, inputs: list[Any]) -> list[Truth]:
    """Return the right outputs on other input distributions that the reference accepts. What passes as given may fail
    there."""
    found = []
    for name in OTHER_KINDS:
        generator = torch.Generator(reference.instance.device).manual_seed(SEEDS[0])
        with suppress(ProblemError):
            truth = reference.truth(DISTRIBUTIONS[name](inputs, generator))
            found += [] if overflows(truth, "strict") else [truth]
    return found


def _wide(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)


def _variation(one: Any, other: Any) -> float:
    """Return the largest change of a tensor between two outputs, relative to its norm; infinity if it has none."""
    changes = []
    for a, b in zip(tensors_in(one), tensors_in(other), strict=True):
        if not a.numel() or a.shape != b.shape:
            return float("inf")
        wide = torch.complex128 if a.is_complex() else torch.float64
        norm = float(torch.linalg.vector_norm(a.to(wide)))
        changes.append(float(torch.linalg.vector_norm(a.to(wide) - b.to(wide))) / norm if norm else float("inf"))
    return max(changes, default=float("inf"))


def _has_weights(reference: Reference) -> bool:
    """Return whether the constructor draws weights. The weights of a live module are given, not drawn."""
    given = reference.instance.problem.state_digest is not None
    return not given and any(True for _ in reference.model.parameters())


def _is_precision_blind(instance: Instance, inputs: list[Any], truth: Truth) -> bool:
    """Return whether the reference with inputs and weights rounded to half precision passes as strict."""

    def narrow(leaf: Any) -> Any:
        rounded = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float32, torch.float64)
        return leaf.half().to(leaf.dtype) if rounded else leaf

    if not any(t.dtype in (torch.float32, torch.float64) for t in tensors_in(truth.own)):
        return False  # no output could be computed at a lower precision than its own
    rough = Reference(instance, SEEDS[0])
    rough.model.load_state_dict({name: narrow(value) for name, value in rough.state().items()})
    try:
        rounded = rough.truth(pytree.tree_map(narrow, inputs)).own
    except ProblemError:  # it checks its inputs, such as vectors of length one, more closely than half precision keeps
        return False
    return not isinstance(compare(truth, rounded, "strict", "lint"), Mismatch)


def _seconds(reference: Reference, inputs: list[Any]) -> float:
    """Return the shortest time of five calls of the reference."""
    times = []
    with torch.no_grad():
        for _ in range(5):
            start = time.perf_counter()
            reference.model(*inputs)
            reference.instance.wait()
            times.append(time.perf_counter() - start)
    return min(times)
