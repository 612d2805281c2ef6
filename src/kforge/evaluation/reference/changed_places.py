"""Changes single positions in some entries of a module's state and not in others. (torch)

A program may keep a value that it computed from several weights, and recompute it only if it notices that one of them
has changed. So entries change in groups: parameters without buffers, buffers without parameters, one entry alone, and
all entries but that one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from kforge.evaluation.reference.other_values import (
    PLACES,
    change_a_place,
    exchange_rows,
    is_ascending,
    is_long,
    is_mask,
    is_real_or_complex,
    real_parameters,
    some_rows,
)
from kforge.evaluation.reference.weights import OF_TORCH

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor, nn

    from kforge.evaluation.reference.weights import State
    from kforge.problems.instance import Instance

KINDS = ("element", "element", "column", "column", None)
"""For each change of a round, the kind of position that changes; None means any kind."""
MOST_ROWS = 4
"""Most rows of a lookup table that change, among those that the next call uses."""
SHARES = (3, 9)
"""If it is unknown which rows of a lookup table the next call uses, one row in 2^3 to 2^9 changes."""
TRIES = 8
"""Most positions that are tried until a change has an effect. It has none on a zero, for example."""


def changing_buffers(instance: Instance, model: nn.Module) -> list[str]:
    """Return the names of the buffers in which positions may change.

    Real numbers are multiplied. In masks and in integer tables that the constructor draws, rows are exchanged, so that
    their range and permutations are kept. Numbers in ascending order may be edges of bins, and do not change.
    """
    parameters = real_parameters(model)
    return [
        name
        for name, value in model.state_dict().items()
        if name not in parameters
        and not name.endswith(OF_TORCH)
        and _may_change(value, name in instance.likeness.fixed)
    ]


def _may_change(value: Tensor, fixed: bool) -> bool:
    if is_real_or_complex(value) and (fixed or not is_mask(value)):
        return bool((value.isfinite() & (value != 0)).any()) and not is_ascending(value)
    rows = len(value) if value.dim() else 0
    return not fixed and rows > 1 and (value.dim() > 1 or is_mask(value))


def group(parameters: list[str], buffers: list[str], tables: Collection[str], number: int, seed: int) -> list[str]:
    """Return the entries that change together in change number `number` of a round. All changes of a round have one
    seed.

    One of the lookup `tables` changes alone: a change of another entry would tell the program that something changed.
    """
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    every = [*parameters, *buffers]
    if parameters and buffers:
        halves = [parameters, buffers]
    else:
        shuffled = chance.sample(every, len(every))
        halves = [shuffled[: len(every) // 2], shuffled[len(every) // 2 :]]
    chance.shuffle(halves)
    alone = chance.choice([name for name in every if name in tables] or every)
    rest = [name for name in every if name != alone]
    last = chance.choice(rest or every)
    return [*halves, [alone], rest, [last]][number] or every


def with_changed_places(
    instance: Instance,
    model: nn.Module,
    names: list[str],
    number: int,
    seed: int,
    tables: Collection[str] = (),
    used: Mapping[str, Tensor] | None = None,
) -> State:
    """Return these entries of a module's state, each with one position changed. Signs and zeros are kept.

    `number` is the number of the change in its round. `used` has the rows of tables that the next call looks up.
    """
    chance = random.Random(seed)  # noqa: S311 - as secret as its seed
    kind = KINDS[number] or chance.choice(PLACES)
    state, changed = model.state_dict(), dict[str, torch.Tensor]()
    for name in names:
        before = state[name].detach()
        is_table = name in tables and is_long(before)
        drawn = name not in instance.likeness.fixed
        for _ in range(TRIES):
            changed[name] = before.clone()
            if not is_real_or_complex(before) or (drawn and is_mask(before)):
                exchange_rows(changed[name], chance)
            elif is_table:
                of_a_table = kind if kind == "element" else "row"
                change_a_place(changed[name], of_a_table, chance, _rows(before, chance, (used or {}).get(name)))
            else:
                change_a_place(changed[name], kind, chance)
            if not torch.equal(changed[name], before):
                break
    return changed


def _rows(table: Tensor, chance: random.Random, used: Tensor | None) -> Tensor | None:
    """Return the indices of the rows of a table that change: some of the used ones, or random ones if those are
    unknown. None if they are unknown and the table has few rows."""
    if used is None or not len(used):
        return some_rows(table, 2 ** chance.randint(*SHARES), chance)
    return used[chance.sample(range(len(used)), min(len(used), MOST_ROWS))]
