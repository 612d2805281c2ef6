"""Decides whether the reference is reliable on inputs far outside the given values. (torch)

On such inputs (`problems/inputs/other_ranges.py`) a program is judged for gross errors only, and not at all if the
reference is unreliable. The reference is reliable if three things hold. Its result is finite. Torch at the problem's
dtype agrees with double precision within the floor, or within some units in the last place if that is more, as in
bfloat16. And perturbing the inputs by some units in the last place hardly changes the result: the sine of 1e15 is
unreliable, and so is a quotient whose divisor is a sum that cancels. For very small inputs even double precision may
lose digits, for example if they are added to 1. So there the result is compared with the result for larger inputs.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, compare, element_errors, ordered_like
from kforge.evaluation.constants import FLOORS
from kforge.evaluation.correctness.perturbation import shaken
from kforge.evaluation.reference.reference import in_double
from kforge.problems.tensors import cloned, spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from typing import Any

    from kforge.evaluation.reference.reference import Reference

GROSS = "half"
"""Precision whose floor a program must keep on inputs beyond the given values: 8e-3 of the output's scale in single
precision."""
STEADY = "tf32"
"""Precision whose floor (a quarter of that of GROSS) torch itself must keep when inputs beyond the given values are
perturbed."""
OWN_UNITS, PERTURBED_UNITS = 8.0, 32.0
"""Error that torch may always have on inputs beyond the given values, in units in the last place: OWN_UNITS on the
inputs themselves, PERTURBED_UNITS on perturbed ones. A few operations in bfloat16 have an error above bfloat16's
floor."""
MOVES = 2
"""Number of perturbed copies of the inputs on which the reference is run, to see whether it is reliable."""
ROOM, FEW = 8, 16
"""In a tensor in which torch is unreliable, a program may be off in ROOM times as many elements as torch, or in FEW
elements if that is more."""
LARGER, OUT_OF_PROPORTION = 2.0**30, 2e-3
"""The result for very small inputs is compared with the result for inputs that are LARGER times as large. The second
result must equal the first one, or be larger by LARGER, or by the square of LARGER. It may differ from that by
OUT_OF_PROPORTION of its root mean square."""
LARGEST_MINUTE = 2.0**-20
"""An input tensor counts as very small (`minute`) if all its numbers are smaller than this."""
LOOKS_UP = ("index", "gather", "scatter", "embedding", "take", "bincount", "one_hot", "nll_loss", "cross_entropy",
            "multinomial", "bernoulli", "histc", "put")  # fmt: skip
"""Parts of the names of operators that break a device's context if an index is out of bounds."""
CLAMPS = ("clamp", "clamp_", "clip", "clip_")
"""Names of torch functions that limit values to a range."""


def is_sound(reference: Reference, truth: Truth, precision: str) -> bool:
    """Return whether the reference is reliable on these inputs, so that a program that is far off is wrong."""
    return not any(unreliable(reference, truth, precision))


def unreliable(reference: Reference, truth: Truth, precision: str) -> list[int]:
    """Return for each leaf of the output how many elements are unreliable.

    That is the largest number of elements that are off in torch's own result, or in its results for perturbed inputs.
    All elements are unreliable if the reference fails on perturbed inputs.
    """
    inside = reference.half_inside
    most = _off_by_leaf(truth, truth.own, precision, OWN_UNITS, inside)
    if reference.seed is not None or reference.has_history:  # another call would give another result
        return most
    model = copy.deepcopy(reference.model)
    try:
        for seed in range(MOVES):
            result = reference.own_result(shaken(truth.inputs, seed), model)
            most = list(map(max, most, _off_by_leaf(truth, result, STEADY, PERTURBED_UNITS, inside)))
    except ProblemError:
        return [_size(leaf) for leaf in pytree.tree_leaves(truth.exact)]
    return most


def spared_where_unreliable(reference: Reference, truth: Truth, output: Any, counts: list[int]) -> Any:
    """Return the output with torch's own tensor in place of each tensor that is off in few enough elements.

    The limit is ROOM times the tensor's number in `counts` (see `unreliable`), and at least FEW. A tensor without
    unreliable elements stays as it is.
    """
    leaves, form = pytree.tree_flatten(ordered_like(truth.own, output))
    own = pytree.tree_leaves(truth.own)
    off = _off_by_leaf(truth, output, GROSS, PERTURBED_UNITS, reference.half_inside)
    if len(leaves) != len(own):
        return truth.own if any(counts) else output
    for index, (count, wrong) in enumerate(zip(counts, off, strict=True)):
        if count and wrong <= max(FEW, ROOM * count):
            leaves[index] = own[index]
    return pytree.tree_unflatten(leaves, form)


def is_in_proportion(reference: Reference, truth: Truth) -> bool:
    """Return whether results for larger inputs show that the result for very small inputs has lost no digits."""
    if not reference.exact_is_fp64 or reference.seed is not None or reference.has_history:
        return False
    larger = pytree.tree_map(_enlarged, in_double(truth.inputs))
    try:
        result = reference.own_result(larger, copy.deepcopy(reference.exact_model))
    except ProblemError:
        return False
    return all(map(_are_in_proportion, tensors_in(truth.exact), tensors_in(result)))


def _enlarged(leaf: Any) -> Any:
    """Return a tensor multiplied by LARGER if all its numbers are very small; otherwise the tensor unchanged."""
    if not (isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()):
        return leaf
    finite = leaf.abs().nan_to_num(posinf=0.0)
    return leaf * LARGER if float(finite.max()) < LARGEST_MINUTE else leaf


def _are_in_proportion(small: torch.Tensor, large: torch.Tensor) -> bool:
    """Return whether `large` is `small` times 1, LARGER or its square, within OUT_OF_PROPORTION; integers are equal."""
    if small.shape != large.shape or not small.is_floating_point():
        return torch.equal(small, large)
    if not small.numel():
        return True
    scale = float(torch.linalg.vector_norm(large)) / small.numel() ** 0.5
    apart = (float((large - small * LARGER**power).abs().max()) for power in range(3))
    return any(each <= OUT_OF_PROPORTION * scale for each in apart)


def _off_by_leaf(truth: Truth, result: Any, precision: str, units: float, inside: torch.dtype | None) -> list[int]:
    """Return for each leaf how many elements are off by more than the floor, and by more than `units` units in the last
    place.

    The units are of the dtype `inside`, to which the reference rounds internally, if it is given. Leaves of another
    shape, and all leaves if their number differs, are off everywhere.
    """
    exact, own = (pytree.tree_leaves(each) for each in (truth.exact, _as(truth)))
    got = pytree.tree_leaves(ordered_like(truth.own, result))
    if len(got) != len(exact):
        return [_size(leaf) for leaf in exact]
    return [
        _off(one, theirs, precision, units, inside)
        if isinstance(compare(Truth(one, ours), theirs, precision, ""), Mismatch)
        else 0
        for one, ours, theirs in zip(exact, own, got, strict=True)
    ]


def _off(exact: Any, result: Any, precision: str, units: float, inside: torch.dtype | None) -> int:
    """Return how many elements of one leaf are off."""
    if not (isinstance(exact, torch.Tensor) and isinstance(result, torch.Tensor)) or exact.shape != result.shape:
        return _size(exact)
    if not (result.is_floating_point() or result.is_complex()):
        return int((exact != result).sum())
    dtype = result.real.dtype if inside is None else inside
    floor = FLOORS[precision][spec(torch.empty(0, dtype=dtype)).dtype]
    equal = (exact == result) | (exact.isnan() & result.isnan())
    # equal infinities have no error, and must not make the scale infinite
    finite, errors = exact.masked_fill(~exact.isfinite(), 0.0), result.masked_fill(equal & ~exact.isfinite(), 0.0)
    near = element_errors(finite, errors) <= max(floor, units * torch.finfo(dtype).eps)
    return int((~near).sum())  # an infinite or NaN error is not within the limit, so it counts as off


def _size(leaf: Any) -> int:
    return max(1, leaf.numel()) if isinstance(leaf, torch.Tensor) else 1


def _as(truth: Truth) -> Any:
    """Return the right result at the dtypes of torch's own result."""

    def narrowed(exact: Any, own: Any) -> Any:
        both = isinstance(exact, torch.Tensor) and isinstance(own, torch.Tensor)
        return exact.to(own.dtype) if both else own

    return pytree.tree_map(narrowed, truth.exact, truth.own)


class _Names(TorchFunctionMode):
    """A mode of torch that collects the names of the called functions.

    It is no dispatch mode, because that would import torch's compiler.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        by_tensors = name in ("__getitem__", "__setitem__") and bool(tensors_in(args[1]))
        self.seen.add("index" if by_tensors else name)
        return func(*args, **(kwargs or {}))


class _Limits(TorchFunctionMode):
    """A mode of torch that notes whether a value is clamped to a lower limit above the upper limit."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in CLAMPS:
            given = dict(zip(("input", "min", "max"), args, strict=False)) | kwargs
            low, high = given.get("min"), given.get("max")
            self.cross |= isinstance(low, int | float) and isinstance(high, int | float) and low > high
        return func(*args, **kwargs)


def limits_cross(reference: Reference, inputs: list[Any]) -> bool:
    """Return whether the reference clamps to a lower limit that is above the upper limit.

    Torch then returns the upper limit. A kernel that applies the lower limit last returns the lower one. Both are
    right.
    """
    limits = _Limits()
    with limits:
        reference.own_result(cloned(inputs), copy.deepcopy(reference.model))
    return limits.cross


def looks_up(reference: Reference, inputs: list[Any]) -> bool:
    """Return whether the reference uses an operator that fails for indices out of bounds. Raises ProblemError if the
    reference fails on these inputs."""
    with _Names() as names:
        reference.own_result(inputs)
    # the functions that a TorchScript module calls are not seen
    compiled = any(isinstance(each, torch.jit.ScriptModule) for each in reference.model.modules())
    return compiled or any(part in name for name in names.seen for part in LOOKS_UP)
