"""Finds what all constructions of a module have in common: values that are not random, and copies of others. (torch)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from kforge.problems.randomness import seeded
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Callable

LIKENESS_SEEDS = (21, 22)
"""Seeds of the two constructions that are compared. They need not be secret, because this tests only the problem."""
_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has."""


@dataclass(frozen=True)
class Likeness:
    """Names of entries in a module's state dict, by what constructions with different seeds have in common."""

    fixed: frozenset[str] = frozenset()
    """Entries with the same values in every construction."""
    uniform: frozenset[str] = frozenset()
    """Fixed entries whose elements are all equal."""
    switches: frozenset[str] = frozenset()
    """Uniform entries of floating-point ones or zeros, which may be masks."""
    copies: frozenset[str] = frozenset()
    """Entries that always equal an earlier random entry but have their own memory, as in a copied layer."""
    zeros: frozenset[str] = frozenset()
    """Random entries that have a zero at the same position in both constructions, such as a block-diagonal matrix or an
    embedding with a padding row."""
    draws_outside: bool = False
    """Whether the constructor draws random values outside the state dict: a non-persistent buffer, or a plain
    attribute."""

    @classmethod
    def observed(cls, make_model: Callable[[], nn.Module]) -> Likeness:
        """Compare two constructions. Raises what `make_model` raises."""
        states, outside = [], []
        for seed in LIKENESS_SEEDS:
            with seeded(seed):
                model = make_model()
            states.append({name: value.detach() for name, value in model.state_dict().items()})
            outside.append(outside_of_state(model))
        first, other = states
        fixed = frozenset(name for name, value in first.items() if name in other and same(value, other[name]))
        originals: dict[tuple[tuple[int, ...], torch.dtype, float], list[str]] = {}
        copies = []
        for name, value in first.items():
            if name in fixed or name not in other or not value.numel():
                continue
            kin = originals.setdefault((tuple(value.shape), value.dtype, _corner(value)), [])
            if any(all(_copied(name, original, state) for state in states) for original in kin):
                copies.append(name)
            else:
                kin.append(name)
        uniform = frozenset(name for name in fixed if bool((first[name] == first[name].flatten()[:1]).all()))
        switches = frozenset(name for name in uniform if _is_zero_or_one(first[name]))
        zeros = frozenset(
            name for name in first.keys() - fixed if name in other and _zero_alike(first[name], other[name])
        )
        return cls(fixed, uniform, switches, frozenset(copies), zeros, _differ(*outside))


def outside_of_state(model: nn.Module) -> list[Any]:
    """Return the plain attributes of a module and its submodules, and the non-persistent buffers."""
    found: list[Any] = []
    for part in model.modules():
        found += [value for name, value in part._buffers.items() if name in part._non_persistent_buffers_set]
        found += [value for name, value in vars(part).items() if name not in _OF_TORCH]
    return pytree.tree_leaves(found)


def _differ(ours: list[Any], theirs: list[Any]) -> bool:
    """Return whether two lists differ in a tensor, an array or a number."""
    if len(ours) != len(theirs):
        return True
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, torch.Tensor):
            if not same(one, other):
                return True
        elif isinstance(one, np.ndarray):
            if not np.array_equal(one, other):
                return True
        elif isinstance(one, int | float | complex) and one != other:
            return True
    return False


def _corner(value: torch.Tensor) -> float:
    """Return a number that differs for most entries, so that few need to be compared completely."""
    first = value.flatten()[0].item()
    return abs(first) if first == first else 0.0


def _is_zero_or_one(value: torch.Tensor) -> bool:
    """Return whether the first element of a floating-point tensor is zero or one."""
    return value.is_floating_point() and value.numel() > 0 and value.flatten()[0].item() in (0.0, 1.0)


def _zero_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have a zero at the same position."""
    zeros = one == 0
    return one.shape == other.shape and bool(zeros.any()) and bool((zeros & (other == 0)).any())


def _copied(name: str, original: str, state: dict[str, torch.Tensor]) -> bool:
    """Return whether two entries are equal but have separate memory."""
    ours, theirs = state[name], state[original]
    return ours.data_ptr() != theirs.data_ptr() and same(ours, theirs)
