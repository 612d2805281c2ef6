"""Computes the right results: runs the problem's own module at its dtype and in fp64, with known weights. (torch)"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, in_range, leaves_range
from kforge.evaluation.reference.half_inside import InDouble, half_inside
from kforge.evaluation.reference.history import marks_of, written
from kforge.evaluation.reference.other_values import vary_constants
from kforge.evaluation.reference.watch import watched
from kforge.evaluation.transport.aliases import find_aliases, tensor_leaves
from kforge.evaluation.transport.codec import is_key, keys_in
from kforge.evaluation.transport.shared_memory import bytes_of
from kforge.evaluation.transport.wire import DTYPES
from kforge.problems.randomness import seeded
from kforge.problems.tensors import cloned, same, spec, tensors_in

if TYPE_CHECKING:
    from kforge.problems.instance import Instance


SAME_DRAW_SHARE = 0.05
"""Two results from the same random numbers, in two precisions, differ by less than this share of their norm."""
_halves_inside: WeakKeyDictionary[Instance, torch.dtype | None] = WeakKeyDictionary()
"""For each problem: the half-precision dtype to which its module rounds inside, or None."""
CAUTIOUS_CALLS = 4
"""Number of first calls in which it is checked whether the module writes to its inputs without torch counting it."""


def subseed(secret: str, *purpose: object) -> int:
    """Return a seed for one purpose. It reveals nothing about the secret or about the seeds of other purposes."""
    text = ":".join([secret, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Reference:
    """The problem's module with weights from one seed. Methods raise ProblemError if the problem's own code fails."""

    def __init__(self, instance: Instance, seed: int, *, varied: bool = False) -> None:
        """With `varied`, weights that every construction sets to the same values are changed, to find programs that
        ignore them."""
        self.instance = instance
        with seeded(seed):
            self.model = instance.make_model()
            self.varied = vary_constants(self.model, instance.likeness) if varied else []
        self.exact_model = copy.deepcopy(self.model).double()
        self.exact_is_fp64 = True
        """Whether the right results are in fp64. False if the module names its own dtypes; the verdict then gets a
        label."""
        self.mutates_inputs = False
        """Whether the module has written to its inputs in a call so far."""
        self.overwrites_outputs = False
        """Whether the module returns its own buffer, which a later call changes."""
        self.shared_outputs: set[int] = set()
        """Numbers of outputs that lie in memory that the module keeps, such as weights. Writing to them changes the
        module."""
        self.seed = 0 if instance.draws_random_numbers else None
        """Random seed that is set before each call; None if the module draws no random numbers."""
        self.has_history = False
        """Whether a call changes the module, for example a buffer that it updates or a list that it appends to."""
        self.updates_parameters = False
        self.calls = 0
        self.output_bytes = 0
        self._cautious = CAUTIOUS_CALLS
        self._form: Any = None
        """The module's result as tensors without values, once it is known that torch's own result is not needed in
        every call."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state dict of the module."""
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def buffers_it_updates(self, before: dict[str, torch.Tensor]) -> dict[str, Truth]:
        """Return the right values of the entries of the state that have changed since `before`, such as running
        statistics."""
        exact = self.exact_model.state_dict()
        changed = {name: value for name, value in self.state().items() if not same(value, before[name])}
        # these did not change in the fp64 module, for example because it failed: torch's own value counts
        kept = {name for name in changed if same(exact[name], before[name].to(exact[name].dtype))}
        return {name: Truth(value if name in kept else exact[name], value) for name, value in changed.items()}

    def truth(self, inputs: list[Any]) -> Truth:
        """Return the right output for these inputs, which are not changed."""
        self._look_inside(inputs)
        widened = in_double(inputs)
        exact, is_fp64 = self._exact(widened)
        writes = any(map(written, tensors_in(widened)))
        # the size of an output may depend on values
        lean = self._form is not None and is_fp64 and not writes and _looks_like(self._form, exact)
        if lean and not leaves_range(exact, self._form):
            return Truth(exact, inputs=inputs, form=self._form, compute=lambda: self._own(inputs))
        left_exact = widened if writes else None
        del widened  # twice as large as the inputs, which may fill much of a device's memory
        given = cloned(inputs) if self._cautious or self.mutates_inputs or writes else inputs
        own = self._own(given)
        self._must_be_judgeable(inputs, own)
        if self.seed is not None and exact is not None and not _draw_alike(exact, own):
            exact, is_fp64 = None, False  # in double precision other random numbers are drawn
        self.exact_is_fp64 &= is_fp64
        changed = given is not inputs and not same(given, inputs)
        self.mutates_inputs |= changed
        left = Truth(left_exact if exact is not None and writes else given, given) if changed else None
        if self._cautious:
            self._cautious -= 1
            self._form = self._form_of(own) if not self._cautious else None
        self.output_bytes = max(self.output_bytes, bytes_of(own))
        exact = own if exact is None else _in_range(exact, own)
        return Truth(exact, own, inputs, aliases=find_aliases(own, given), changed_inputs=left)

    @property
    def half_inside(self) -> torch.dtype | None:
        """The half-precision dtype to which the module rounds internally; None if it does not.

        If it is not None, right results are computed without that rounding (`half_inside.py`).
        """
        return _halves_inside.get(self.instance)

    def _look_inside(self, inputs: list[Any]) -> None:
        """Find out, once for each problem, whether the module rounds to half precision inside."""
        if self.instance not in _halves_inside:
            found = half_inside(
                self._run, self.model, self.exact_model, inputs, lambda: self.instance.inputs(0), in_double
            )
            _halves_inside[self.instance] = found

    def _must_be_judgeable(self, inputs: list[Any], own: Any) -> None:
        """Raise ProblemError if an input or output has a dtype, or an output a key, that kforge does not support."""
        for what, tensors in (("an input", tensors_in(inputs)), ("an output", tensors_in(own))):
            for name in sorted({spec(tensor).dtype for tensor in tensors} - set(DTYPES)):
                raise ProblemError(
                    f"{self.instance.problem.name}: {what} has dtype {name}, which kforge does not judge. "
                    f"Use one of {', '.join(DTYPES)}"
                )
        for key in keys_in(own):
            if not is_key(key):
                raise ProblemError(
                    f"{self.instance.problem.name}: an output is a dict with the key {key!r}, which kforge does not "
                    "judge. Use text or 64-bit integers as keys"
                )

    def truth_of_copies(self, inputs: list[Any]) -> Truth | None:
        """Return the right output, computed by copies of the module, which stays unchanged.

        If the copy in fp64 fails, it returns, like `truth`, torch's own result as the right one. Returns None if the
        copy at the problem's dtype fails, or if the copies draw different random numbers.
        """
        try:
            own = self._run(copy.deepcopy(self.model), cloned(inputs))
        except ProblemError:
            return None
        try:
            exact = self._run(copy.deepcopy(self.exact_model), in_double(inputs))
        except ProblemError:  # for example a module that names its own dtypes
            return Truth(own, own, inputs)
        alike = pytree.tree_structure(own) == pytree.tree_structure(exact)
        if not alike or (self.seed is not None and not _draw_alike(exact, own)):
            return None
        return Truth(_in_range(exact, own), own, inputs)

    def own_result(self, inputs: list[Any], model: torch.nn.Module | None = None) -> Any:
        """Return the output of the module at the problem's dtype, or of `model`, a copy of it."""
        return self._run(model or self.model, inputs)

    def _own(self, inputs: list[Any]) -> Any:
        """Return the module's output at the problem's dtype, and note what the call has changed in the module."""
        state = [*self.model.parameters(), *self.model.buffers()]
        versions, before = list(map(written, state)), marks_of(self.model)
        own = self.own_result(inputs)
        # attributes that only the first call sets are no history
        self.has_history |= before != marks_of(self.model) and (self.calls > 0 or versions != _counts(state))
        self.calls += 1
        updated = [tensor for tensor, writes in zip(state, versions, strict=True) if written(tensor) != writes]
        self.overwrites_outputs |= bool(find_aliases(own, updated))
        self.shared_outputs |= {number for number, _ in find_aliases(own, state)}
        views = {number for number, _ in find_aliases(own, inputs)}
        self.shared_outputs |= _held_elsewhere(tensor_leaves(own)) - views
        self.updates_parameters |= any(isinstance(tensor, torch.nn.Parameter) for tensor in updated)
        return own

    def _form_of(self, own: Any) -> Any:
        """Return the output as tensors without values. Returns None if torch's own result is needed in every call,
        because a call has side effects or returns other values than tensors."""
        leaves = pytree.tree_leaves(own)
        acts = self.mutates_inputs or self.has_history or self.seed is not None or list(self.model.buffers())
        if acts or not all(isinstance(x, torch.Tensor) for x in leaves):
            return None
        return pytree.tree_map(lambda leaf: torch.empty_like(leaf, device="meta"), own)

    def _exact(self, widened: list[Any]) -> tuple[Any, bool]:
        """Return the output in fp64, or None if the module fails in fp64; and whether all of it is in fp64."""
        try:
            with watched(self.instance.problem.name):
                exact = self._run(self.exact_model, widened)
        except ProblemError:
            return None, False
        narrow = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
        return exact, not any(tensor.dtype in narrow for tensor in tensors_in(exact))

    def _run(self, model: torch.nn.Module, inputs: list[Any]) -> Any:
        """Call a module on these inputs, with the same random seed each time. Raises ProblemError if the module
        fails."""
        draws = nullcontext() if self.seed is None else seeded(self.seed)
        # inputs may be integers only
        numbers = (*tensors_in(inputs), *model.parameters(), *model.buffers()) if self.half_inside is not None else ()
        is_exact = any(each.dtype == torch.float64 for each in numbers)
        try:
            with torch.no_grad(), draws, InDouble() if is_exact else nullcontext():
                # a parameter that is returned unchanged still requires gradients
                return pytree.tree_map(_detached, model(*inputs))
        except torch.OutOfMemoryError:  # the device's fault, not the problem's
            raise
        except Exception as error:
            line = str(error).strip().splitlines()[0] if str(error).strip() else ""
            name = self.instance.problem.name
            raise ProblemError(f"{name}: the reference fails: {type(error).__name__}: {line}") from error


def _looks_like(form: Any, exact: Any) -> bool:
    """Return whether two nested values have the same structure and shapes."""
    (ours, structure), (theirs, other) = pytree.tree_flatten(form), pytree.tree_flatten(exact)
    return structure == other and all(
        isinstance(value, torch.Tensor) and value.shape == like.shape for like, value in zip(ours, theirs, strict=True)
    )


def _in_range(exact: Any, own: Any) -> Any:
    return in_range(exact, own) if _looks_like(own, exact) else exact


def _counts(tensors: list[torch.Tensor]) -> list[int]:
    """Return how often each tensor was written."""
    return list(map(written, tensors))


def _draw_alike(exact: Any, own: Any) -> bool:
    """Return whether two results come from the same random numbers. Other random numbers differ more than by
    rounding."""
    for one, other in zip(tensors_in(exact), tensors_in(own), strict=True):
        if one.shape != other.shape:
            return False
        if not other.is_floating_point():
            continue
        finite = one.isfinite() & other.isfinite()
        ours, theirs = (each.double().masked_fill(~finite, 0.0) for each in (one, other))
        if float(torch.linalg.vector_norm(ours - theirs)) > SAME_DRAW_SHARE * float(torch.linalg.vector_norm(theirs)):
            return False
    return True


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def in_double(inputs: list[Any]) -> list[Any]:
    """Return a copy of the inputs in fp64."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_complex():
            return leaf.to(torch.complex128, copy=True)
        return leaf.to(torch.float64, copy=True) if leaf.is_floating_point() else leaf.clone()

    widened: list[Any] = pytree.tree_map(widen, inputs)
    return widened


def _held_elsewhere(outputs: list[torch.Tensor]) -> set[int]:
    """Return the numbers of the outputs whose memory something else holds, too, besides these outputs."""
    storages = [output.untyped_storage() for output in outputs]
    # besides the outputs, one Python object per storage holds it
    holders = Counter(storage._cdata for storage in storages)
    return {
        number
        for number, storage in enumerate(storages)
        if torch._C._storage_Use_Count(storage._cdata) > holders[storage._cdata] + 1
    }
