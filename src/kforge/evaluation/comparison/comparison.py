"""Compares a program's output with the right one, an fp64 reference, element by element. (torch)

The error of an element is its difference from the right value, relative to the scale of the output. The scale is the
root mean square of the right output, or the element's own magnitude if that is larger. The worst error may be
`ERROR_FACTOR` times torch's own worst error at the same dtype, or the floor of the dtype, whichever is larger. So a
softmax over many columns that returns only zeros fails, although each element is within 1e-4 of the right one.

On inputs as the problem gives them, each part of an output is also judged on its own scale (`locality.py`). On other
input distributions it is not: there a row may be small because the inputs of another row are large, and a fast
convolution that is exact to the scale of the whole image is fair.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.locality import Surroundings, has_small_parts, row_norms
from kforge.evaluation.constants import (
    ERROR_FACTOR,
    FAST_ERROR_FACTOR,
    FAST_FLOOR,
    FLOORS,
    LEAST_SCALE,
    LOCAL_FACTOR,
    LOST,
    LOST_BESIDE_LARGE,
)
from kforge.evaluation.transport.aliases import find_aliases
from kforge.problems.tensors import spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kforge.evaluation.transport.aliases import Aliases

CHUNK = 1 << 16
"""Elements that are compared at a time on a host, so that temporaries stay in its cache."""
DEVICE_CHUNK = 1 << 27
"""Elements that are compared at a time on a device, where each step costs a launch. Their temporaries take a
gigabyte."""
PEAK = 4.0
"""Ratio of the largest element to the root mean square that outputs without extreme values rarely exceed."""
MAX_NAMED, MAX_SHOWN = 8, 200
"""MAX_NAMED: most wrong items of an output that a message names. MAX_SHOWN: most characters of that list."""


class Truth:
    """The right result for one set of inputs: in fp64 (`exact`), and as torch computes it at the problem's dtype
    (`own`)."""

    def __init__(
        self,
        exact: Any,
        own: Any = None,
        inputs: Any = (),
        *,
        form: Any = None,
        compute: Callable[[], Any] | None = None,
        aliases: Aliases | None = None,
        changed_inputs: Truth | None = None,
    ) -> None:
        """`inputs` are the tensors into which an output of indices may point.

        `compute` returns torch's own result when it is first needed. It is not needed for an output that is within the
        floor; then `form`, tensors without values, is enough. `aliases` must be given if torch's result was computed
        from other tensors than `inputs`. `changed_inputs` is what torch writes into its inputs.
        """
        self.exact = exact
        self.inputs = inputs
        self.form = form
        self.changed_inputs = changed_inputs
        self._own = own
        self._aliases = aliases
        self._compute = compute

    @property
    def is_whole(self) -> bool:
        """Whether torch's own result is already computed."""
        return self._compute is None

    @property
    def own(self) -> Any:
        """Torch's own result at the problem's dtype; computed at the first access."""
        if self._compute is not None:
            self._own, self._compute = self._compute(), None
        return self._own

    @property
    def aliases(self) -> Aliases:
        """Which of torch's own outputs lie in the memory of which inputs."""
        return find_aliases(self.own, self.inputs) if self._aliases is None else self._aliases


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison that accepts an output: the worst error, and its tolerance."""

    error: float = 0.0
    tolerance: float = 0.0

    def worse_of(self, other: Agreement) -> Agreement:
        """Return the one of two agreements whose error is the larger share of its tolerance."""

        def strain(a: Agreement) -> float:
            return a.error / a.tolerance if a.tolerance else 0.0

        return max((self, other), key=strain)


def compare(
    truth: Truth,
    got: Any,
    precision: str,
    case: str,
    place: str = "output",
    *,
    local: bool = False,
    fast: bool = False,
    slices: bool = True,
) -> Agreement | Mismatch:
    """Return an Agreement if the output is right, otherwise a Mismatch that says how it differs.

    `case` and `place` name the case and the output in messages. `local`: each part of the output must also be right on
    its own scale. `fast`: the errors of fast convolutions are allowed. `slices`: slices are among the parts.
    """
    comparison = _Comparison(precision, case, local=local, fast=fast, slices=slices)
    if not truth.is_whole:
        with suppress(_TorchDecides):
            return comparison.tree(truth.exact, truth.form, got, place)
    return comparison.tree(truth.exact, truth.own, got, place)


class _TorchDecides(Exception):
    """The verdict depends on torch's own result, which is not computed yet."""


class _Comparison:
    """Compares one output, with the tolerances of one precision. Its methods return an Agreement or a Mismatch."""

    def __init__(self, precision: str, case: str, *, local: bool, fast: bool, slices: bool) -> None:
        self.floors = floors(precision, fast)
        self.factor = FAST_ERROR_FACTOR if fast else ERROR_FACTOR
        self.case = case
        self.local = local
        self.fast = fast
        self.slices = slices
        self.lost = LOST_BESIDE_LARGE if fast else LOST

    def tree(self, exact: Any, own: Any, got: Any, place: str) -> Agreement | Mismatch:
        if isinstance(own, torch.Tensor):
            return self.tensor(exact, own, got, place)
        if isinstance(own, (tuple, list, dict)):
            return self.container(exact, own, got, place)
        if isinstance(own, (bool, int, float, complex)) and type(got) is type(own):
            return self.tensor(torch.as_tensor(exact), torch.as_tensor(own), torch.as_tensor(got), place)
        if type(got) is not type(own) or got != own:
            return self.differs("structure", f"{place} must be {_name(own)}, got {_name(got)}")
        return Agreement()

    def container(self, exact: Any, own: Any, got: Any, place: str) -> Agreement | Mismatch:
        # a named tuple arrives from the worker as a tuple
        kind = next(t for t in (tuple, list, dict) if isinstance(own, t))
        if not isinstance(got, kind):
            return self.differs("structure", f"{place} must be a {kind.__name__}, got {_name(got)}")
        keys = list(own) if isinstance(own, dict) else list(range(len(own)))
        theirs = list(got) if isinstance(got, dict) else list(range(len(got)))
        if sorted(map(repr, keys)) != sorted(map(repr, theirs)):
            got_keys = f"{len(theirs)}: {str(theirs[:MAX_NAMED])[:MAX_SHOWN]}"
            return self.differs("structure", f"{place} must hold {len(keys)} items {keys}, got {got_keys}")
        worst = Agreement()
        for key in keys:
            found = self.tree(exact[key], own[key], got[key], f"{place}[{key!r}]")
            if isinstance(found, Mismatch):
                return found
            worst = worst.worse_of(found)
        return worst

    def tensor(self, exact: torch.Tensor, own: torch.Tensor, got: Any, place: str) -> Agreement | Mismatch:
        if not isinstance(got, torch.Tensor):
            return self.differs("structure", f"{place} must be a tensor, got {_name(got)}")
        if got.shape != own.shape:
            return self.differs("shape", f"{place} must have shape {list(own.shape)}, got {list(got.shape)}")
        if got.dtype != own.dtype:
            return self.differs("dtype", f"{place} must be {spec(own).dtype}, got {spec(got).dtype}")
        if not own.numel():
            return Agreement()
        if not (own.is_floating_point() or own.is_complex()):
            return self.integers(exact, own, got, place)
        return self.floats(exact, own, got, place)

    def integers(self, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, place: str) -> Agreement | Mismatch:
        wrong = got != exact.to(got.dtype)
        if own.is_meta and bool(wrong.any()):
            raise _TorchDecides
        # torch's own rounding may pick another index than fp64 does: either is right
        wrong = wrong if own.is_meta else wrong & (got != own)
        count = int(wrong.sum())
        if not count:
            return Agreement()
        at = tuple(int(i) for i in wrong.nonzero()[0])
        reason = f"{place}: {count} of {got.numel()} elements differ, first at {list(at)}: {got[at]} for {own[at]}"
        return self.differs("numerical", reason, error=count / got.numel(), tolerance=0.0)

    def floats(self, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, place: str) -> Agreement | Mismatch:
        exact = exact.to(torch.complex128 if own.is_complex() else torch.float64)
        norms = row_norms(exact) if self.local else exact
        norm, count = float(torch.linalg.vector_norm(norms)), exact.numel()
        if not math.isfinite(norm):
            if own.is_meta:
                raise _TorchDecides
            odd = ~torch.isfinite(exact)
            difference = self.non_finite(exact, own, got, odd, place)
            if difference is not None:
                return difference
            # they agree where the right result is not finite: from here on only the other elements count
            exact, own, got = (t.masked_fill(odd, 0.0) for t in (exact, own, got))
            norms = row_norms(exact)
            norm, count = float(torch.linalg.vector_norm(norms)), max(1, count - int(odd.sum()))
        if not math.isfinite(norm):  # the sum of squares of finite numbers overflows
            return self.floats_of_any_size(exact, own, got, place)
        rms = scale = _rms(norm, count)
        if self.fast:  # a fast convolution is only exact relative to the largest value
            scale = max(rms, float(torch.linalg.vector_norm(exact, ord=math.inf)) / PEAK)
        floor = self.floors[spec(own.real).dtype]
        farthest = _farthest(exact, got)
        error, tolerance = farthest / scale, floor
        if not error <= tolerance:  # only then do the elements' own magnitudes matter
            error = _worst_error(exact, got, scale)
        if not error <= tolerance:  # and only then torch's own error
            if own.is_meta:
                raise _TorchDecides
            beyond = torch.isfinite(exact) & ~torch.isfinite(own)
            if bool(beyond.any()):
                return self.floats_beside_overflow(exact, own, got, beyond, place)
            tolerance = max(self.factor * _worst_error(exact, own, scale), tolerance)
        if error <= tolerance:
            if self.local and has_small_parts(exact, rms, floor, farthest):
                local_floor = tolerance * scale / rms if self.fast else floor
                slice_limit = LOCAL_FACTOR * floor if self.slices else math.inf
                parts = Surroundings(exact, norms, local_floor, farthest, self.lost, slice_limit)
                off = self.parts(parts, own, got, place)
                return off or Agreement(error, tolerance)
            return Agreement(error, tolerance)
        at, share = _where_off(exact, got, scale, tolerance)
        reason = (
            f"{place}: error {error:.3g} over tolerance {tolerance:.3g} (relative to the output's RMS {scale:.3g}, or "
            f"to the element where that is larger), worst at {list(at)}: {got[at].item():.7g} for "
            f"{exact[at].item():.7g}; {share:.1%} of the elements are off"
        )
        return self.differs("numerical", reason, error=error, tolerance=tolerance)

    def floats_of_any_size(
        self, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, place: str
    ) -> Agreement | Mismatch:
        """Compare finite numbers whose sum of squares overflows double precision, by scaling them down first."""
        beyond = ~torch.isfinite(own)
        if bool(beyond.any()):
            return self.floats_beside_overflow(exact, own, got, beyond, place)
        size = float(exact.abs().max())
        return self.floats(exact / size, own / size, got / size, place)

    def floats_beside_overflow(
        self, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, beyond: torch.Tensor, place: str
    ) -> Agreement | Mismatch:
        """Compare where torch overflows and fp64 does not. There the output may overflow as well, or be right.

        Torch's error is infinite there, so it must not widen the tolerance of the other elements.
        """
        truth, own_rest, rest = (tensor.masked_fill(beyond, 0.0) for tensor in (exact, own, got))
        found = self.floats(truth, own_rest, rest, place)
        if isinstance(found, Mismatch):
            return found
        finite = beyond & torch.isfinite(got)
        truth, ours = exact[finite], got[finite]
        error = float(((ours - truth).abs() / truth.abs().clamp(min=LEAST_SCALE)).max()) if len(ours) else 0.0
        tolerance = max(found.tolerance, self.floors[spec(own.real).dtype])
        if error <= tolerance:
            return found
        reason = (
            f"{place}: error {error:.3g} over tolerance {tolerance:.3g} in {len(ours)} finite elements where torch "
            "leaves the number range: they must be right, infinite or NaN there"
        )
        return self.differs("numerical", reason, error=error, tolerance=tolerance)

    def parts(self, parts: Surroundings, own: torch.Tensor, got: torch.Tensor, place: str) -> Mismatch | None:
        """Return a Mismatch if a part of the output (a row, a run, a slice) is wrong on its own scale; otherwise
        None."""
        errors, limits = parts.errors(got), parts.limits
        if bool((errors <= limits).all()):
            return None
        if own.is_meta:
            raise _TorchDecides
        limits = torch.maximum(limits, self.factor * parts.errors(own))
        strain, part = (errors / limits).max(dim=0)
        if strain <= 1:
            return None
        reason = (
            f"{place}: {parts.name(int(part))}: error {float(errors[part]):.3g} over tolerance "
            f"{float(limits[part]):.3g} (relative to the scale of the reference there)"
        )
        # in units of the floor, as the error of the whole output is: callers compare both
        floor = self.floors[spec(own.real).dtype]
        return self.differs("numerical", reason, error=float(strain) * floor, tolerance=floor)

    def non_finite(
        self, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, places: torch.Tensor, place: str
    ) -> Mismatch | None:
        """Return a Mismatch if the output is not infinite or NaN where the right result is (in fp64 or in torch);
        otherwise None."""
        ours = got[places].to(exact.dtype)
        same = _equal(exact[places], ours) | _equal(own[places].to(exact.dtype), ours)
        if bool(same.all()):
            return None
        reason = f"{place}: {int((~same).sum())} elements must be infinite or NaN as in the reference, and are not"
        return self.differs("numerical", reason, error=float("inf"), tolerance=0.0)

    def differs(
        self, kind: Any, reason: str, *, error: float | None = None, tolerance: float | None = None
    ) -> Mismatch:
        return Mismatch(kind=kind, reason=reason, case=self.case, max_error=error, tolerance=tolerance)


def leaves_range(exact: Any, form: Any) -> bool:
    """Return whether any number of a result in double precision is NaN, infinite, or too large for its dtype in `form`.

    `form` has a tensor for each tensor of the result. Tensors of the same dtype in both are not examined.
    """
    return any(
        one.numel() > 0 and not float(torch.linalg.vector_norm(one, ord=math.inf)) <= torch.finfo(like.dtype).max
        for one, like in zip(tensors_in(exact), tensors_in(form), strict=True)
        if (like.is_floating_point() or like.is_complex()) and one.dtype != like.dtype
    )


def in_range(exact: Any, own: Any) -> Any:
    """Return a double-precision result in which numbers too large for the dtype are replaced by torch's own finite
    numbers.

    A module that writes the largest number of its dtype writes a larger one in double precision.
    """

    def narrowed(one: Any, ours: Any) -> Any:
        if not isinstance(one, torch.Tensor) or not (ours.is_floating_point() or ours.is_complex()):
            return one
        finite = torch.isfinite(one) & torch.isfinite(ours)
        return torch.where(finite & (one.abs() > torch.finfo(ours.dtype).max), ours.to(one.dtype), one)

    return pytree.tree_map(narrowed, exact, own) if leaves_range(exact, own) else exact


def ordered_like(model: Any, value: Any) -> Any:
    """Return a nested value whose dicts have the order of those in `model`, if they have the same keys."""
    if isinstance(model, dict) and isinstance(value, dict) and model.keys() == value.keys():
        return {key: ordered_like(inner, value[key]) for key, inner in model.items()}
    if isinstance(model, (tuple, list)) and isinstance(value, (tuple, list)) and len(model) == len(value):
        inner = [ordered_like(one, other) for one, other in zip(model, value, strict=True)]
        return tuple(inner) if isinstance(value, tuple) else inner
    return value


def surely_alike(one: Any, other: Any, precision: str) -> bool:
    """Return True if two outputs certainly agree within the floor. This costs a fraction of `compare`.

    If it returns False, they may still agree. It returns True if each element is within half the floor on its own
    scale, or if each is on the scale of the whole output and every part is right on its own scale as well.
    """
    (ours, shape), (theirs, other_shape) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return shape == other_shape and all(map(partial(_surely_close, FLOORS[precision]), ours, theirs))


def _surely_close(floors: Mapping[str, float], one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if one.shape != other.shape or one.dtype != other.dtype or one.dtype not in (torch.float32, torch.float64):
        return False
    floor = floors[spec(one).dtype]
    if not one.numel() or _each_is_close(one, other, floor / 2):
        return True
    apart, norms = _farthest(one, other), row_norms(one)
    rms = float(torch.linalg.vector_norm(norms)) / math.sqrt(one.numel())
    if not (math.isfinite(rms) and apart <= floor / 2 * rms):
        return False
    if not has_small_parts(one, rms, floor, apart):
        return True
    parts = Surroundings(one, norms, floor, apart)
    return bool((parts.errors(other) <= parts.limits).all())


def _each_is_close(one: torch.Tensor, other: torch.Tensor, share: float) -> bool:
    """Return whether every element differs from the other one by at most this share of itself. False if one is not
    finite."""
    most = torch.finfo(one.dtype).max  # so that an infinite difference exceeds the limit of an infinite element
    return all(
        bool((torch.sub(ours, theirs).abs_() <= ours.abs().clamp_(min=LEAST_SCALE, max=most).mul_(share)).all())
        for ours, theirs in _pieces(one, other)
    )


def floors(precision: str, fast: bool) -> dict[str, float]:
    """Return the error, by dtype, that an output may always have. `fast` allows the errors of fast convolutions."""
    return {dtype: floor * (FAST_FLOOR if fast else 1.0) for dtype, floor in FLOORS[precision].items()}


def surroundings(
    exact: torch.Tensor, got: torch.Tensor, floor: float, slice_limit: float, *, fast: bool
) -> Surroundings:
    """Return the parts of a finite output that are each judged on their own scale: rows, groups of neighbouring
    elements along a dimension (`runs`), slices, and small elements."""
    exact = exact.to(torch.complex128 if exact.is_complex() else torch.float64)
    least = LOST_BESIDE_LARGE if fast else LOST
    return Surroundings(exact, row_norms(exact), floor, _farthest(exact, got), least, slice_limit)


def element_errors(exact: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Return the error of each element of a finite output, relative to the output's scale."""
    exact = exact.to(torch.complex128 if exact.is_complex() else torch.float64)
    rms = _rms(float(torch.linalg.vector_norm(exact)), exact.numel())
    return torch.sub(got, exact).abs().div_(exact.abs().clamp_(min=rms))


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return where two tensors have the same value, or are both NaN."""
    return (one == other) | (one.isnan() & other.isnan())


def _rms(norm: float, count: int) -> float:
    """Return the root mean square, at least LEAST_SCALE; 1 if all elements are zero."""
    return max(norm / math.sqrt(count), LEAST_SCALE) if norm else 1.0


def _farthest(exact: torch.Tensor, got: torch.Tensor) -> float:
    """Return the largest difference of two elements; NaN if any difference is NaN. It takes a third of the time of
    `_worst_error`."""
    pieces = list(_pieces(exact, got))
    # computed in double and written in single precision: on a device, memory traffic takes most of the time
    room = torch.empty_like(pieces[0][1]) if got.dtype == torch.float32 else None
    found = []
    for truth, ours in pieces:
        each = torch.sub(ours, truth, out=None if room is None else room[: len(ours)])
        found.append(each.abs().max() if each.is_complex() else torch.stack(each.aminmax()).abs_().max())
    return float(torch.stack(found).max())


def _worst_error(exact: torch.Tensor, got: torch.Tensor, rms: float) -> float:
    """Return the largest error of an element, relative to the output's scale; infinity if an element of the output is
    NaN."""
    # a maximum is NaN where any element is
    worst = float(torch.stack([errors.max() for errors in _errors(exact, got, rms)]).max())
    return math.inf if math.isnan(worst) else worst


def _where_off(exact: torch.Tensor, got: torch.Tensor, rms: float, tolerance: float) -> tuple[tuple[int, ...], float]:
    """Return the position of the largest error, and the share of elements whose error exceeds the tolerance."""
    worst, place, start, off = -1.0, 0, 0, 0
    for errors in _errors(exact, got, rms):
        errors.nan_to_num_(nan=torch.inf, posinf=torch.inf)
        off += int((errors > tolerance).sum())
        if (highest := float(errors.max())) > worst:
            worst, place = highest, start + int(errors.argmax())
        start += len(errors)
    # numpy's: torch's own would import sympy first (0.7 s)
    return tuple(int(i) for i in np.unravel_index(place, exact.shape)), off / exact.numel()


def _errors(exact: torch.Tensor, got: torch.Tensor, rms: float) -> Iterator[torch.Tensor]:
    """Yield the errors of the elements, a piece at a time, which is faster.

    Comparing takes most of the time of a correctness case.
    """
    for truth, ours in _pieces(exact, got):
        scale = truth.abs().clamp_(min=rms)
        difference = torch.sub(ours, truth)
        yield (difference.abs() if difference.is_complex() else difference.abs_()).div_(scale)


def _pieces(exact: torch.Tensor, got: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of short pieces of both tensors, flattened, so that temporaries stay small."""
    chunk = CHUNK if exact.is_cpu else DEVICE_CHUNK
    return zip(torch.split(exact.reshape(-1), chunk), torch.split(got.reshape(-1), chunk), strict=True)


def _name(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
