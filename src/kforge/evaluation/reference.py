"""The trusted side of a comparison: the problem's own module at its dtype and in fp64, with known weights. (torch)"""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.aliases import find_aliases
from kforge.evaluation.constants import VARIATION
from kforge.evaluation.memory import bytes_of
from kforge.evaluation.verify import Truth
from kforge.problems.tensors import cloned, same, tensors_in

if TYPE_CHECKING:
    from kforge.problems.instance import Instance


CAUTIOUS_CALLS = 4
"""Calls after which it is known whether the module writes to its inputs in a way that torch does not count."""


def subseed(secret: str, *purpose: object) -> int:
    """A seed for one purpose, which tells nothing about the secret or about any other purpose."""
    text = ":".join([secret, *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Reference:
    """Computes what is right for given inputs. Raises ProblemError when the problem's own code fails."""

    def __init__(self, instance: Instance, seed: int, *, varied: bool = False) -> None:
        """`varied`: what every constructor leaves constant is varied, so that a program that ignores it shows."""
        self.instance = instance
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = instance.make_model()
            self.varied = _vary_constants(self.model) if varied else []
        self.exact_model = copy.deepcopy(self.model).double()
        self.exact_is_fp64 = True
        """False when the module names its dtypes: then its own result is (part of) the truth, and that is labelled."""
        self.mutates_inputs = False
        self.overwrites_outputs = False
        """Whether it returns a buffer of its own that a later call changes."""
        self.output_bytes = 0
        self._cautious = CAUTIOUS_CALLS
        self._form: Any = None
        """What its own result looks like, once that is known to be enough."""

    def state(self) -> dict[str, torch.Tensor]:
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def buffers_it_updates(self, before: dict[str, torch.Tensor]) -> dict[str, Truth]:
        """The buffers (running statistics, say) that the calls so far have changed."""
        exact = self.exact_model.state_dict()
        return {
            name: Truth(exact[name], value) for name, value in self.state().items() if not same(value, before[name])
        }

    def truth(self, inputs: list[Any]) -> Truth:
        """The right output for these inputs, which are left as they are."""
        widened = _widen(inputs)
        exact, is_fp64 = self._exact(widened)
        writes = any(map(_writes_to, tensors_in(widened)))
        # how large an output is may depend on values
        if self._form is not None and is_fp64 and not writes and _looks_like(self._form, exact):
            return Truth(exact, inputs=inputs, form=self._form, compute=lambda: self._own(inputs))
        written = widened if writes else None
        del widened  # twice as large as the inputs, which may be a good part of a device's memory
        given = cloned(inputs) if self._cautious or self.mutates_inputs or writes else inputs
        own = self._own(given)
        self.exact_is_fp64 &= is_fp64
        changed = given is not inputs and not same(given, inputs)
        self.mutates_inputs |= changed
        left = Truth(written if exact is not None and writes else given, given) if changed else None
        if self._cautious:
            self._cautious -= 1
            self._form = self._form_of(own) if not self._cautious else None
        self.output_bytes = max(self.output_bytes, bytes_of(own))
        exact = own if exact is None else exact
        return Truth(exact, own, inputs, aliases=find_aliases(own, given), changed_inputs=left)

    def own_result(self, inputs: list[Any], model: torch.nn.Module | None = None) -> Any:
        """Of the module at the problem's dtype, or of a copy of it."""
        return self._run(model or self.model, inputs)

    def _own(self, inputs: list[Any]) -> Any:
        """That result; it is noted whether it lies in state that the call has updated."""
        state = [*self.model.parameters(), *self.model.buffers()]
        versions = list(map(_writes_to, state))
        own = self.own_result(inputs)
        updated = [tensor for tensor, writes in zip(state, versions, strict=True) if _writes_to(tensor) != writes]
        self.overwrites_outputs |= bool(find_aliases(own, updated))
        return own

    def _form_of(self, own: Any) -> Any:
        """Tensors without values; None where every call must be made: it has an effect, or gives more than tensors."""
        leaves = pytree.tree_leaves(own)
        if self.mutates_inputs or list(self.model.buffers()) or not all(isinstance(x, torch.Tensor) for x in leaves):
            return None
        return pytree.tree_map(lambda leaf: torch.empty_like(leaf, device="meta"), own)

    def _exact(self, widened: list[Any]) -> tuple[Any, bool]:
        """The result in fp64, or None where the module does not take such inputs; and whether all of it is in fp64."""
        try:
            exact = self._run(self.exact_model, widened)
        except ProblemError:
            return None, False
        narrow = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
        return exact, not any(tensor.dtype in narrow for tensor in tensors_in(exact))

    def _run(self, model: torch.nn.Module, inputs: list[Any]) -> Any:
        try:
            with torch.no_grad():
                # a parameter that is returned as it is wants gradients
                return pytree.tree_map(_detached, model(*inputs))
        except torch.OutOfMemoryError:  # the device's fault, not the problem's
            raise
        except Exception as error:
            line = str(error).strip().splitlines()[0] if str(error).strip() else ""
            name = self.instance.problem.name
            raise ProblemError(f"{name}: the reference fails: {type(error).__name__}: {line}") from error


def _looks_like(form: Any, exact: Any) -> bool:
    (ours, structure), (theirs, other) = pytree.tree_flatten(form), pytree.tree_flatten(exact)
    return structure == other and all(
        isinstance(value, torch.Tensor) and value.shape == like.shape for like, value in zip(ours, theirs, strict=True)
    )


def _vary_constants(model: torch.nn.Module) -> list[str]:
    """Move a norm's weight of ones, a bias of zeros or running statistics by up to a quarter; signs are kept."""
    varied = []
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point() and value.numel() and bool((value == value.flatten()[0]).all()):
                noise = VARIATION * (2 * torch.rand_like(value) - 1)
                value.add_(torch.where(value == 0, noise, noise * value))
                varied.append(name)
    return varied


def _writes_to(tensor: torch.Tensor) -> int:
    """How often a tensor was written to since it was made, as torch counts; it does not for inference tensors."""
    return 0 if tensor.is_inference() else tensor._version


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _widen(inputs: list[Any]) -> list[Any]:
    """A copy of the inputs in fp64."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_complex():
            return leaf.to(torch.complex128, copy=True)
        return leaf.to(torch.float64, copy=True) if leaf.is_floating_point() else leaf.clone()

    widened: list[Any] = pytree.tree_map(widen, inputs)
    return widened
