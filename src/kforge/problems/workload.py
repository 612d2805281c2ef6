"""Runs a reference twice and describes its inputs, outputs, work and properties. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kforge.errors import ProblemError
from kforge.problems.randomness import seeded
from kforge.problems.tensors import least_bytes, same, spec, tensors_in
from kforge.records import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

UNORDERED = 1e-3
"""Sums that are added in varying order differ by less than this, relative to the whole output, or by a unit in the last
place if that is larger. Random numbers differ by more."""
UNORDERED_SHARE = 1e-4
"""Sums that are added in varying order change at most this share of integer outputs, such as positions of a maximum.
Random numbers change more."""
SEED = 0
"""Seed of inputs and weights. It need not be secret, because this tests only the problem."""


def measure(name: str, make_model: Callable[[], nn.Module], make_inputs: Callable[[int], list[Any]]) -> Workload:
    """Run the reference twice from the same weights and inputs, and return facts about it.

    Labels: `nondeterministic` (the two outputs differ by more than a varying order of additions explains), `unsteady`
    (they differ by less than that), `random` (they differ by more, but are equal if the random generators have the same
    state), `updates state` (a call changes buffers or parameters), `modifies inputs`. Raises ProblemError for sparse
    tensors, and if `forward` returns no tensor.
    """
    with seeded(SEED):
        model, inputs = make_model(), make_inputs(SEED)
        state = _state(model)
        _refuse_sparse(name, [*tensors_in(inputs), *state])
        before = [tensor.clone() for tensor in state]
        counter = _FlopCount()
        with torch.no_grad(), counter:
            outputs = model(*inputs)
        made = tensors_in(outputs)
        _refuse_no_tensors(name, outputs)
        _refuse_sparse(name, made)
        untouched = make_inputs(SEED)
        findings = {"updates state": not same(before, state), "modifies inputs": not same(untouched, inputs)}
        again = _run_again(make_model, untouched)
        alike = _alike(outputs, again)
        # compared bitwise: results that are only close do not show that the generators decide them
        random = not alike and same(*(_run_seeded(make_model, make_inputs) for _ in range(2)))
        findings |= {"nondeterministic": not alike and not random, "random": random}
        findings |= {"unsteady": alike and not same(outputs, again)}
    return Workload(
        inputs=tuple(spec(tensor) for tensor in tensors_in(inputs)),
        outputs=tuple(spec(tensor) for tensor in made),
        parameters=tuple(
            spec(tensor).model_copy(update={"name": name}) for name, tensor in zip(_names(model), state, strict=True)
        ),
        flops=counter.total,
        bytes_moved=least_bytes([*tensors_in(inputs), *state, *made]),
        labels=tuple(sorted(label for label, found in findings.items() if found)),
    )


class _FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode of torch that counts FLOPs by torch's formulas. `FlopCounterMode` is not used, because it imports
    dynamo, which takes 1.6 s."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not import dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.total += int(count(*args, **kwargs, out_val=out))
        return out


def _run_again(make_model: Callable[[], nn.Module], inputs: list[Any]) -> Any:
    """Return the output of a second call, with the random generators in another state."""
    with seeded(SEED):
        model = make_model()
    # Outside the seeded block the generators are in another state, so a reference that draws random numbers differs.
    with torch.no_grad():
        return model(*inputs)


def _run_seeded(make_model: Callable[[], nn.Module], make_inputs: Callable[[int], list[Any]]) -> Any:
    """Return the output for the same inputs and weights, with the random generators in a fixed state."""
    inputs = make_inputs(SEED)
    with seeded(SEED):
        model = make_model()
    with seeded(SEED), torch.no_grad():
        return model(*inputs)


def _alike(one: Any, other: Any) -> bool:
    """Return whether two outputs differ by no more than a varying order of additions explains."""
    ours, theirs = tensors_in(one), tensors_in(other)
    return [spec(each) for each in ours] == [spec(each) for each in theirs] and all(map(_alike_tensors, ours, theirs))


def _alike_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    if same(one, other):
        return True
    if one.is_complex():
        one, other = (torch.view_as_real(each.resolve_conj()) for each in (one, other))
    if not one.is_floating_point():
        return int((one != other).sum()) <= UNORDERED_SHARE * one.numel()
    odd = ~(torch.isfinite(one) & torch.isfinite(other))
    if not bool(((one == other) | (one.isnan() & other.isnan()))[odd].all()):
        return False
    ours, theirs = (each.double().masked_fill(odd, 0.0) for each in (one, other))
    limit = max(UNORDERED, torch.finfo(one.dtype).eps)
    return float(torch.linalg.vector_norm(ours - theirs)) <= limit * float(torch.linalg.vector_norm(ours))


def _state(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _names(model: nn.Module) -> list[str]:
    """Return the names of `_state`."""
    return [name for name, _ in [*model.named_parameters(), *model.named_buffers()]]


def _refuse_no_tensors(name: str, outputs: Any) -> None:
    """Raise ProblemError if there is no tensor in an output, as in an object whose attributes are not looked at."""
    if not tensors_in(outputs):
        returned = next(iter(pytree.tree_leaves(outputs)), outputs)
        raise ProblemError(
            f"{name}: forward returns no tensors: outputs must be tensors, or tensors in tuples, lists or dicts, and "
            f"an object of class {type(returned).__name__} was returned"
        )


def _refuse_sparse(name: str, tensors: list[torch.Tensor]) -> None:
    """Raise ProblemError for a tensor that is not strided."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise ProblemError(f"{name}: tensors of layout {tensor.layout} are not supported; use dense ones")
