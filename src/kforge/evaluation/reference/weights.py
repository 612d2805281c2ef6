"""Makes new weights for a program that is being judged, because every call must use the present weights. (torch)

The prompts state this requirement. A program that packs or folds its weights must notice a change: by their version
counters, in a hook of `load_state_dict`, or by packing in every call.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from kforge.evaluation.reference.other_values import (
    ROWS_PER_ENLARGED_ROW,
    enlarge_a_row,
    flip,
    has_finite_marks,
    is_ascending,
    is_mask,
    is_no_limit,
    is_real_or_complex,
    is_tiny,
    is_uniform,
    is_vast,
    make_ordinary,
    make_wild,
    move,
    real_parameters,
    shuffle,
)
from kforge.evaluation.reference.reference import Reference
from kforge.problems.inputs.symmetry import symmetry_of
from kforge.problems.randomness import seeded
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kforge.problems.instance import Instance

State = dict[str, torch.Tensor]
"""A state dict: tensors by name."""
MOST_ALONE = 3
"""Most parameters that are tried with an enlarged row one at a time, if the reference does not accept all of them at
once."""
LONG_AGO = (10**5, 10**6)
"""Range of the number that is added to a counter of calls. Schedules have ended by then."""
OF_TORCH = "num_batches_tracked"
"""End of the name of a counter that torch's norms have, and that hardly any module computes with."""


@dataclass(frozen=True)
class Change:
    """One way in which an entry of a new state leaves the range that the constructor draws from."""

    kind: str
    """One of KINDS, such as `buffer` or `switch`."""
    name: str
    """Name of the entry in the state dict."""


KINDS = ("buffer", "counter", "ordinary", "switch", "unordered", "wild", "wild_buffer")
"""Kinds of changes, in the order in which they are made:
`buffer`: a buffer that every construction sets to the same values is changed.
`counter`: a counter of calls starts at a large number.
`ordinary`: an entry that is tiny, or too large to limit anything, gets usual values, so that its effect shows.
`switch`: some elements of a mask are flipped.
`unordered`: numbers in ascending order get another order.
`wild`: some elements of a parameter get another sign, zero or a larger value.
`wild_buffer`: the same for a buffer of numbers; zeros that every construction sets become other numbers."""


def new_state(instance: Instance, seed: int, old: State) -> State:
    """Return a state in which every parameter differs from the old one.

    Weights are drawn by the constructor with another seed. Weights that are given, or that every construction sets to
    the same values, are changed by up to a quarter.
    """
    given = instance.problem.state_digest is not None
    model = Reference(instance, seed, varied=not given).model
    with seeded(seed), torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_real_or_complex(parameter) and parameter.numel() and name in old and same(parameter, old[name]):
                move(parameter)
    return {name: value.detach() for name, value in model.state_dict().items()}


def far_changes(
    instance: Instance,
    model: nn.Module,
    state: State,
    counters: Iterable[str] = (),
    unordered: Iterable[str] = (),
) -> list[Change]:
    """Return all changes by which a state of this module can leave the range that the constructor draws from.

    `counters` are the names of counters of calls. `unordered` are ascending buffers that the module accepts in any
    order.
    """
    parameters = [name for name, _ in model.named_parameters() if name in state]
    numbers = [name for name, value in state.items() if is_real_or_complex(value) and value.numel()]
    found = {
        "buffer": [name for name in varied_buffers(instance, model) if name in state],
        "counter": [name for name in counters if name in state],
        "ordinary": [
            name
            for name in numbers
            if is_tiny(state[name]) or is_no_limit(state[name]) or (name in parameters and is_vast(state[name]))
        ],
        "switch": [name for name in switches(instance, model) if name in state],
        "unordered": [name for name in unordered if name in state and is_ascending(state[name])],
        "wild": [name for name in parameters if name in numbers],
        "wild_buffer": [name for name in numeric_buffers(model) if name in numbers and _may_be_wild(state[name])],
    }
    return [Change(kind, name) for kind in KINDS for name in found[kind]]


def with_changes(
    state: State, changes: Iterable[Change], instance: Instance, seed: int, *, fewer: bool = False
) -> State:
    """Return a copy of a state with these changes made. Flipped masks have more elements set than before, or
    `fewer`."""
    state = copy.deepcopy(state)  # tied entries stay tied
    with seeded(seed), torch.no_grad():
        for change in sorted(changes, key=lambda each: KINDS.index(each.kind)):
            value = state[change.name]
            if change.kind == "counter":
                value.add_(int(torch.randint(*LONG_AGO, ())))
            elif change.kind == "ordinary":
                make_ordinary(value)
            elif change.kind in ("wild", "wild_buffer"):
                if change.name in instance.likeness.zeros:  # zeros in every construction become other numbers
                    move(value)
                make_wild(value)
            elif change.kind == "unordered":
                shuffle(value)
            elif change.kind == "switch" or value.dtype == torch.bool:
                flip(value, fewer=fewer)
            else:
                ascending = is_ascending(value)
                move(value, zeros=False)
                if ascending:
                    value.copy_(value.sort().values)
    return state


def fixed_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """Return the names of the buffers that every construction sets to the same values, except those that
    `vary_constants` changed."""
    parameters = real_parameters(model)
    given = instance.problem.state_digest is not None
    names = []
    for name, value in model.state_dict().items():
        varied = not given and is_real_or_complex(value) and name in instance.likeness.uniform
        fixed = name in instance.likeness.fixed and not varied and not name.endswith(OF_TORCH)
        if fixed and name not in parameters and value.numel():
            names.append(name)
    return names


def varied_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """Return the names of those fixed buffers that may be changed: numbers, and masks that are all true or all
    false."""
    state = model.state_dict()
    return [
        name
        for name in fixed_buffers(instance, model)
        if is_real_or_complex(state[name]) or (state[name].dtype == torch.bool and is_uniform(state[name]))
    ]


def switches(instance: Instance, model: nn.Module) -> list[str]:
    """Return the names of the buffers that are masks, or may be masks.

    These are masks that the constructor draws, and floating-point buffers of only ones or only zeros. If a module
    compares a mask with zero, it does not show that ones were changed to other numbers; so elements must be flipped.
    Running statistics of torch's own modules are not among them.
    """
    parameters = real_parameters(model)
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters | _statistics(model)
        and value.numel() > 1
        and (name in instance.likeness.switches or (name not in instance.likeness.fixed and has_finite_marks(value)))
    ]


def _statistics(model: nn.Module) -> set[str]:
    """Return the names of the buffers of torch's own normalization modules."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in model.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase)
        for name in part._buffers
    }


def numeric_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers with several numbers, except the statistics of torch's own modules."""
    parameters = real_parameters(model)
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters | _statistics(model) and is_real_or_complex(value) and value.numel() > 1
    ]


def unlimited_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers whose elements are so large or infinite that a change by a quarter has no
    effect."""
    parameters = real_parameters(model)
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters and is_real_or_complex(value) and (is_vast(value) or not bool(value.isfinite().all()))
    ]


def _may_be_wild(value: torch.Tensor) -> bool:
    """Return whether elements of a buffer may get another sign, another size, or zero.

    Not in a mask, in a strictly ascending vector (it may hold edges of bins), or beside infinite or NaN elements.
    """
    return bool(value.isfinite().all()) and not is_mask(value) and not is_ascending(value)


def ascending_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers of real numbers in ascending order."""
    state = model.state_dict()
    return [name for name in numeric_buffers(model) if is_ascending(state[name])]


def structured_buffers(instance: Instance, model: nn.Module) -> dict[str, bool]:
    """Return the buffers with zeros at fixed positions, and the symmetric ones. The value is True if every change keeps
    that structure.

    A buffer that every construction sets to the same values keeps its zeros: it may be a mask or a filter.
    """
    state, fixed = model.state_dict(), instance.likeness.fixed
    numeric = {name: state[name] for name in numeric_buffers(model) if not is_uniform(state[name])}
    kept = {name: True for name, value in numeric.items() if name in fixed and bool((value == 0).any())}
    symmetrical = {name for name, value in numeric.items() if symmetry_of(value) is not None}
    return dict.fromkeys(symmetrical | (instance.likeness.zeros & numeric.keys()), False) | kept


def large_states(model: nn.Module, seed: int, tables: Collection[str] = ()) -> Iterator[State]:
    """Yield states in which parameters have an enlarged row: first all parameters together, then single ones.

    In lookup `tables`, one row in eight is enlarged.
    """
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    enlarged: State = {}
    for name, parameter in model.named_parameters():
        if is_real_or_complex(parameter) and parameter.numel():
            enlarged[name] = parameter.detach().clone()
            enlarge_a_row(enlarged[name], chance, ROWS_PER_ENLARGED_ROW if name in tables else None)
    if enlarged:
        yield enlarged
    for name in chance.sample(list(enlarged), min(len(enlarged), MOST_ALONE)) if len(enlarged) > 1 else ():
        yield {name: enlarged[name]}


def hand_over(state: State, *models: nn.Module) -> None:
    """Copy a state into these modules, in place. Entries that a module does not have are skipped."""
    with torch.no_grad():
        for model in models:
            for name, target in model.state_dict().items():
                if name in state:
                    target.copy_(state[name])
