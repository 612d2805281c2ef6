"""Other weights for a program that is being judged: it must compute with those that it has at the time. (torch)

Programs are told so: every call computes with its present weights. One that packs or folds them must notice a change,
by their version counters, in a hook of `load_state_dict`, or by doing it in every call.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.reference.other_values import (
    EIGHTH,
    FEWEST,
    PLACES,
    change_a_place,
    enlarge_a_row,
    flip,
    is_long,
    is_real_or_complex,
    is_tiny,
    is_uniform,
    make_ordinary,
    make_wild,
    move,
)
from kforge.evaluation.reference.reference import Reference
from kforge.problems.randomness import seeded
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn

    from kforge.problems.instance import Instance

State = dict[str, torch.Tensor]
MOST_ALONE = 3
"""So many parameters are tried alone with a far larger row, where the reference does not take all of them so."""
LONG_AGO = (10**5, 10**6)
"""Between these a counter of calls starts anew: schedules have ended by then."""
OF_TORCH = "num_batches_tracked"
"""A counter that most modules carry along and none computes with."""


@dataclass(frozen=True)
class Boldness:
    """How far a new state goes; what the reference does not take is left out in the next one."""

    wild: str = "all"
    """Which parameters have other signs, zeros and larger values in places: `all`, `several` elements, or `none`."""
    buffers: bool = True
    """Whether buffers that every constructor leaves alike change."""
    ordinary: bool = False
    """Whether tiny parameters become ordinary ones: what they multiply shows only then."""


BOLDEST_FIRST = (
    Boldness(ordinary=True),
    Boldness("none", ordinary=True),
    Boldness(),
    Boldness("several"),
    Boldness("none"),
    Boldness("all", buffers=False),
    Boldness("several", buffers=False),
    Boldness("none", buffers=False),
)


def new_state(
    instance: Instance, seed: int, old: State, boldness: Boldness = BOLDEST_FIRST[-1], counters: Iterable[str] = ()
) -> State:
    """A state that differs from the old one in every parameter.

    It is drawn as the first one was. Weights that are given, or that every constructor draws alike, are moved by up to
    a quarter, and so are those of which every constructor leaves the same places zero. `counters` are buffers that
    count calls: they start late.
    """
    given = instance.problem.state_digest is not None
    model = Reference(instance, seed, varied=not given).model
    with seeded(seed), torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_real_or_complex(parameter) and parameter.numel():
                alike = name in old and same(parameter, old[name])
                if alike or (boldness.wild != "none" and name in instance.likeness.zeros):
                    move(parameter)
                if boldness.ordinary and is_tiny(parameter):
                    make_ordinary(parameter)
                if boldness.wild == "all" or (boldness.wild == "several" and parameter.numel() > 1):
                    make_wild(parameter)
        if boldness.buffers:
            _vary_buffers(model, varied_buffers(instance, model), counters)
    return {name: value.detach() for name, value in model.state_dict().items()}


def has_tiny(model: nn.Module) -> bool:
    return any(is_tiny(parameter.detach()) for parameter in model.parameters())


def wild_state(model: nn.Module, names: Iterable[str], seed: int, *, ordinary: bool = False) -> State:
    """These entries of a model: parameters with other signs, zeros and larger values in places, masks flipped.

    `ordinary`: tiny parameters have ordinary values first.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    changed: State = {}
    with seeded(seed), torch.no_grad():
        for name, value in model.state_dict().items():
            if name in names and (name in parameters or value.dtype == torch.bool):
                changed[name] = value.detach().clone()
                if ordinary and is_tiny(changed[name]):
                    make_ordinary(changed[name])
                (flip if value.dtype == torch.bool else make_wild)(changed[name])
    return changed


def fixed_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """Names of the buffers that every constructor leaves alike, and that were not varied with the constants."""
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
    """Those of them that may have other values: numbers, and masks that are all true or all false."""
    state = model.state_dict()
    return [
        name
        for name in fixed_buffers(instance, model)
        if is_real_or_complex(state[name]) or (state[name].dtype == torch.bool and is_uniform(state[name]))
    ]


def _vary_buffers(model: nn.Module, names: Iterable[str], counters: Iterable[str]) -> None:
    """Move numbers by up to a quarter, keeping signs and zeros; flip some elements of a mask; start counters late."""
    state = model.state_dict()
    for name in names:
        if state[name].dtype == torch.bool:
            flip(state[name])
        else:
            move(state[name], zeros=False)
    for name in counters:
        state[name].add_(int(torch.randint(*LONG_AGO, ())))


def odd_state(model: nn.Module, seed: int, number: int, *, looked_up: int = 0) -> State:
    """The parameters of a model, each with one place changed; signs and zeros stay.

    `number` counts the changes before this one: the first is of an element, the second of a column. `looked_up` is how
    many rows of a long table a call may look up. So many rows change then that a call sees one or two of them. The
    third change touches such tables only: a change elsewhere would give it away.
    """
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    kind = PLACES[number] if number < 2 else chance.choice(PLACES)
    part = min(FEWEST, max(EIGHTH, looked_up // 2)) if looked_up else None
    changing = {name: each for name, each in model.named_parameters() if is_real_or_complex(each) and each.numel()}
    if looked_up and number >= 2:
        tables = {name: each for name, each in changing.items() if is_long(each)}
        changing = tables or changing
        kind = chance.choice(("element", "row")) if tables else kind
    changed: State = {}
    for name, parameter in changing.items():
        changed[name] = parameter.detach().clone()
        change_a_place(changed[name], kind, chance, part)
    return changed


def large_states(model: nn.Module, seed: int, *, looked_up: int = 0) -> Iterator[State]:
    """Parameters with one row that is far larger, or an eighth of a long table: all of them, then single ones."""
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    enlarged: State = {}
    for name, parameter in model.named_parameters():
        if is_real_or_complex(parameter) and parameter.numel():
            enlarged[name] = parameter.detach().clone()
            enlarge_a_row(enlarged[name], chance, EIGHTH if looked_up else None)
    if enlarged:
        yield enlarged
    for name in chance.sample(list(enlarged), min(len(enlarged), MOST_ALONE)) if len(enlarged) > 1 else ():
        yield {name: enlarged[name]}


def hand_over(state: State, *models: nn.Module) -> None:
    """Overwrite what these models have of a state, in place."""
    with torch.no_grad():
        for model in models:
            for name, target in model.state_dict().items():
                if name in state:
                    target.copy_(state[name])
