"""Measures what one call of a reference takes, makes and computes, by running it. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
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
"""Sums that a device adds up in no fixed order differ by less than this, relative to the whole output (or by no more
than a unit in the last place, where that is larger). Random numbers differ by more."""
UNORDERED_SHARE = 1e-4
"""Sums in no fixed order change at most this share of integers (such as the position of a maximum); random numbers
change more."""
SEED = 0
"""The workload is a fact of the problem, not a test of a candidate: its seed need not be secret."""


def measure(name: str, make_model: Callable[[], nn.Module], make_inputs: Callable[[int], list[Any]]) -> Workload:
    """Run the reference twice from the same weights and inputs.

    Labels: `nondeterministic` (the runs differ by more than sums in another order do), `unsteady` (by less), `random`
    (they differ so much, and do not under the same state of the generators), `updates state` (buffers or parameters
    change in a call), `modifies inputs`. Raises ProblemError for tensors that are not strided.
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
        _refuse_sparse(name, made)
        untouched = make_inputs(SEED)
        findings = {"updates state": not same(before, state), "modifies inputs": not same(untouched, inputs)}
        again = _run_again(make_model, untouched)
        alike = _alike(outputs, again)
        # to the last bit: results that are only near by chance follow no generator
        random = not alike and same(*(_run_seeded(make_model, make_inputs) for _ in range(2)))
        findings |= {"nondeterministic": not alike and not random, "random": random}
        findings |= {"unsteady": alike and not same(outputs, again)}
    return Workload(
        inputs=tuple(spec(tensor) for tensor in tensors_in(inputs)),
        outputs=tuple(spec(tensor) for tensor in made),
        parameters=tuple(spec(tensor) for tensor in state),
        flops=counter.total,
        bytes_moved=least_bytes([*tensors_in(inputs), *state, *made]),
        labels=tuple(sorted(label for label, found in findings.items() if found)),
    )


class _FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs by torch's own formulas. `FlopCounterMode` would import all of dynamo first (1.6 s)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this torch would import dynamo, although nothing is compiled here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.total += int(count(*args, **kwargs, out_val=out))
        return out


def _run_again(make_model: Callable[[], nn.Module], inputs: list[Any]) -> Any:
    with seeded(SEED):
        model = make_model()
    # Outside the seeded block the generators have moved on, so a reference that draws random numbers shows itself.
    with torch.no_grad():
        return model(*inputs)


def _run_seeded(make_model: Callable[[], nn.Module], make_inputs: Callable[[int], list[Any]]) -> Any:
    """Run on the same inputs and weights, with the generators in the same state."""
    inputs = make_inputs(SEED)
    with seeded(SEED):
        model = make_model()
    with seeded(SEED), torch.no_grad():
        return model(*inputs)


def _alike(one: Any, other: Any) -> bool:
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


def _refuse_sparse(name: str, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise ProblemError(f"{name}: tensors of layout {tensor.layout} are not supported; use dense ones")
