"""Makes other weights for a program that is being judged: every call must use the present weights. (torch)

Programs are told so. One that packs or folds its weights must notice a change, by their version counters, in a hook of
`load_state_dict`, or by doing it in every call.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from kforge.evaluation.reference.other_values import (
    EIGHTH,
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
    shuffle,
)
from kforge.evaluation.reference.reference import Reference
from kforge.problems.inputs.structure import symmetric
from kforge.problems.randomness import seeded
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kforge.problems.instance import Instance

State = dict[str, torch.Tensor]
MOST_ALONE = 3
"""Most parameters that are tried alone with a far larger row, where the reference does not accept all of them
enlarged."""
LONG_AGO = (10**5, 10**6)
"""Range in which a counter of calls starts again: schedules have ended by then."""
OF_TORCH = "num_batches_tracked"
"""A counter that most modules carry along and none computes with."""


@dataclass(frozen=True)
class Change:
    """One way in which an entry of a new state leaves the range of a draw."""

    kind: str
    """One of KINDS."""
    name: str


KINDS = ("buffer", "counter", "ordinary", "switch", "unordered", "wild", "wild_buffer")
"""Kinds of changes, in the order in which they are made and tried. `buffer`: one that every constructor leaves alike
changes, or a mask is flipped in places. `counter`: it starts late. `ordinary`: a tiny entry has ordinary values,
because what it multiplies shows only then, and so has an entry that is too large to limit anything. `switch`: some
elements of a mask are flipped. `unordered`: numbers in ascending order get another one. `wild`: a parameter has other
signs, zeros and larger values in places.
`wild_buffer`: a buffer of numbers has; zeros that draws leave become other numbers."""


def new_state(instance: Instance, seed: int, old: State) -> State:
    """Return a state that differs from the old one in every parameter.

    It is drawn as the first one was. Weights that are given, or that every constructor draws alike, are changed by up
    to a quarter.
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
    """Return every change by which a state of this module can leave the range of a draw.

    `counters` count calls; `unordered` are buffers in ascending order for which the module needs no order.
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


def with_changes(state: State, changes: Iterable[Change], instance: Instance, seed: int) -> State:
    """A copy of a state with these changes made."""
    state = copy.deepcopy(state)  # tied entries stay tied
    with seeded(seed), torch.no_grad():
        for change in sorted(changes, key=lambda each: KINDS.index(each.kind)):
            value = state[change.name]
            if change.kind == "counter":
                value.add_(int(torch.randint(*LONG_AGO, ())))
            elif change.kind == "ordinary":
                make_ordinary(value)
            elif change.kind in ("wild", "wild_buffer"):
                if change.name in instance.likeness.zeros:  # zeros that every constructor leaves become another number
                    move(value)
                make_wild(value)
            elif change.kind == "unordered":
                shuffle(value)
            elif change.kind == "switch" or value.dtype == torch.bool:
                flip(value)
            else:
                ascending = is_ascending(value)
                move(value, zeros=False)
                if ascending:
                    value.copy_(value.sort().values)
    return state


def fixed_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """The names of the buffers that every constructor leaves alike, and that were not varied with the constants."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    given = instance.problem.state_digest is not None
    names = []
    for name, value in model.state_dict().items():
        varied = not given and is_real_or_complex(value) and name in instance.likeness.uniform
        fixed = name in instance.likeness.fixed and not varied and not name.endswith(OF_TORCH)
        if fixed and name not in parameters and value.numel():
            names.append(name)
    return names


def varied_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """Return those fixed buffers that may have other values: numbers, and masks that are all true or all false."""
    state = model.state_dict()
    return [
        name
        for name in fixed_buffers(instance, model)
        if is_real_or_complex(state[name]) or (state[name].dtype == torch.bool and is_uniform(state[name]))
    ]


def switches(instance: Instance, model: nn.Module) -> list[str]:
    """Return the names of the buffers that are masks, or may be: those that draws decide, and the floating-point ones
    that every constructor fills with ones, or with zeros.

    A mask that is compared with zero does not show that its ones have changed. A drawn mask may have the same number of
    marks in every draw. Running statistics of torch's own modules are not among them.
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters | _statistics(model)
        and value.numel() > 1
        and (name in instance.likeness.switches or (name not in instance.likeness.fixed and has_finite_marks(value)))
    ]


def _statistics(model: nn.Module) -> set[str]:
    """Names of the buffers of torch's own normalisations."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in model.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase)
        for name in part._buffers
    }


def numeric_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers of several numbers that are not statistics of torch's own modules."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters | _statistics(model) and is_real_or_complex(value) and value.numel() > 1
    ]


def unlimited_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers with elements that a change by a quarter leaves as they were in effect."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters and is_real_or_complex(value) and (is_vast(value) or not bool(value.isfinite().all()))
    ]


def _may_be_wild(value: torch.Tensor) -> bool:
    """Return whether a buffer may be wild. Masks may be compared with zero, and ordered numbers may be edges of bins:
    they may not."""
    return bool(value.isfinite().all()) and not is_mask(value) and not is_ascending(value)


def ascending_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers of real numbers in ascending order."""
    state = model.state_dict()
    return [name for name in numeric_buffers(model) if is_ascending(state[name])]


def structured_buffers(instance: Instance, model: nn.Module) -> dict[str, bool]:
    """Return the buffers with zeros at fixed positions, or that are symmetric; True where every change keeps that.

    A buffer that every constructor makes alike keeps its zeros: it may be a mask, or a filter of limited length.
    """
    state, fixed = model.state_dict(), instance.likeness.fixed
    numeric = {name: state[name] for name in numeric_buffers(model) if not is_uniform(state[name])}
    kept = {name: True for name, value in numeric.items() if name in fixed and bool((value == 0).any())}
    symmetrical = {name for name, value in numeric.items() if symmetric(value)}
    return dict.fromkeys(symmetrical | (instance.likeness.zeros & numeric.keys()), False) | kept


def large_states(model: nn.Module, seed: int, tables: Collection[str] = ()) -> Iterator[State]:
    """Yield states in which parameters have a row that is far larger than drawn: first all parameters, then single
    ones. In `tables` (looked-up parameters) one row in eight is enlarged."""
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    enlarged: State = {}
    for name, parameter in model.named_parameters():
        if is_real_or_complex(parameter) and parameter.numel():
            enlarged[name] = parameter.detach().clone()
            enlarge_a_row(enlarged[name], chance, EIGHTH if name in tables else None)
    if enlarged:
        yield enlarged
    for name in chance.sample(list(enlarged), min(len(enlarged), MOST_ALONE)) if len(enlarged) > 1 else ():
        yield {name: enlarged[name]}


def hand_over(state: State, *models: nn.Module) -> None:
    """Overwrite the entries of a state that these models have, in place."""
    with torch.no_grad():
        for model in models:
            for name, target in model.state_dict().items():
                if name in state:
                    target.copy_(state[name])
