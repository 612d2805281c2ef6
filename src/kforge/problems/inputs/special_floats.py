"""Puts floating-point numbers into the inputs that a module may treat in a special way, such as the code of a missing
reading. (torch)

Random draws never contain such numbers. Those that may be special are the numbers in the module's source, the numbers
among its attributes and arguments, and buffers and inputs of one element. They are written to random positions of the
inputs. A number may also be a limit, and the number itself may be treated like those below it. So half of the positions
get 1.5 times the number. If the reference does not accept that, only numbers from the interval that the given values
suggest are used (`_is_within`), and if it does not accept those either, no very large ones.
"""

from __future__ import annotations

import ast
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kforge import syntax
from kforge.problems.inputs.distributions import HUGE, in_order, overlaps, replacing
from kforge.problems.inputs.scalars import scalars_in
from kforge.problems.inputs.structure import kept_symmetry, special_places
from kforge.problems.tensors import tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from kforge.problems.inputs.distributions import Distribution
    from kforge.problems.inputs.structure import Leaf, Structure
    from kforge.problems.instance import Instance

SPECIAL_FLOATS = "special_floats"
"""Name of the case with floating-point numbers that the module may treat differently."""
SHARE, SHARE_OF_HUGE = 1 / 8, 1 / 64
"""SHARE: share of the elements of an input that are replaced. SHARE_OF_HUGE: share that very large numbers replace; it
is smaller, because in a sum such a number hides the effect of all others."""
MOST_USED = 24
"""Most numbers that are used in a case. If more are known, this many of them are chosen at random."""
BEYOND = 1.5
"""Half of the positions get this many times a number, because the number may be a limit."""
ORDINARY = (-1.0, 0.0, 0.5, 1.0, 2.0)
"""Numbers that are not used, because other cases contain them or because they show nothing."""


def named_numbers(instance: Instance) -> list[float]:
    """Return the floating-point numbers and negative integers in the problem's source; none if it cannot be parsed."""
    try:
        tree = syntax.parsed(instance.problem.source)
    except syntax.Unparsable:
        return []
    return _usable(_of_source(tree))


def _of_source(tree: ast.AST) -> Iterator[float]:
    """Yield the floating-point numbers of a syntax tree, and its negative integers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            if isinstance(number := node.operand.value, int | float):
                yield -_float(number)
        elif isinstance(node, ast.Constant) and type(node.value) is float:
            yield node.value


def numbers_of_module(model: nn.Module) -> list[float]:
    """Return the floating-point numbers and negative integers among the attributes of a module and its submodules, and
    the buffers of one element."""
    held = [value for module in model.modules() for value in vars(module).values()]
    single = [each.item() for each in model.buffers() if each.numel() == 1 and each.is_floating_point()]
    return _usable([*(number for value in held for number in _numbers_in(value)), *single])


def _numbers_in(value: Any) -> list[float]:
    """Return the floating-point numbers and negative integers in an attribute: the value itself, or members of a
    collection."""
    members = [*value] if isinstance(value, list | tuple | set | frozenset) else [value]
    return [_float(each) for each in members[:MOST_USED] if type(each) is float or (type(each) is int and each < 0)]


def _of_inputs(inputs: Sequence[Any]) -> list[float]:
    """Return the Python numbers among the inputs, and the numbers in floating-point tensors of one element."""
    single = [each.item() for each in tensors_in(inputs) if each.numel() == 1 and each.is_floating_point()]
    return _usable([*(_float(each) for each in scalars_in(inputs) if type(each) in (int, float)), *single])


def _float(number: float) -> float:
    """Return a number as a float; infinity if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _usable(numbers: Any) -> list[float]:
    """Return each finite number once, without ORDINARY ones."""
    return list(dict.fromkeys(each for each in numbers if math.isfinite(each) and each not in ORDINARY))


def variations(numbers: Sequence[float], structure: Structure, inputs: Sequence[Any]) -> list[Distribution]:
    """Return the distribution of the case, then milder ones; none if there is no number to use.

    `numbers` are those of the source and the module, `inputs` a sample of the inputs.
    """
    possible = [*numbers, *_of_inputs(inputs)]
    leaves = [leaf for leaf in structure.leaves if leaf.kind == "floating"]
    if not (possible and leaves):
        return []
    some_outside = any(not _is_within(each, leaf.low, leaf.high) for each in possible for leaf in leaves)
    within_intervals = partial(_special, numbers=numbers)
    return [
        *([partial(within_intervals, free=True)] if some_outside else []),
        within_intervals,
        *([partial(within_intervals, largest=HUGE)] if any(abs(each) > HUGE for each in possible) else []),
    ]


def _is_within(number: float, low: float, high: float) -> bool:
    """Return whether a number is in the interval that the given values, from `low` to `high`, suggest.

    The interval is [0, 1] if it contains all given values, otherwise the numbers from 0 on if these do, otherwise all
    numbers.
    """
    return not low >= 0 or 0 <= number <= (1 if high <= 1 else math.inf)


def _special(
    inputs: Sequence[Any],
    generator: torch.Generator,
    structure: Structure | None = None,
    *,
    numbers: Sequence[float],
    free: bool = False,
    largest: float = math.inf,
) -> list[Any]:
    """Return the inputs with special numbers at random positions. `free`: also numbers outside the interval that the
    values of a tensor suggest. `largest`: the largest magnitude that is used."""
    possible = [each for each in dict.fromkeys([*numbers, *_of_inputs(inputs)]) if abs(each) <= largest]
    order = torch.randperm(len(possible), generator=generator, device=generator.device)[:MOST_USED].tolist()

    def replace(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
        if given.numel() < 2 or overlaps(given) or in_order(leaf) or kept_symmetry(given, leaf) is not None:
            return given
        low, high = (-math.inf, math.inf) if free or leaf is None else (leaf.low, leaf.high)
        used = [number for index in order for number in _with_larger(possible[index]) if _is_within(number, low, high)]
        return _with_numbers(given, leaf, generator, used)

    return replacing(replace)(inputs, generator, structure)


def _with_larger(number: float) -> tuple[float, float]:
    """Return a number that may be a limit, and a number beyond it."""
    return number, BEYOND * number


def _with_numbers(given: Tensor, leaf: Leaf | None, generator: torch.Generator, numbers: Sequence[float]) -> Tensor:
    """Return the tensor with these numbers at random positions. Zeros, infinities and NaN whose positions belong to the
    problem stay."""
    values = given.detach()
    for share, used in (
        (SHARE, [each for each in numbers if abs(each) <= HUGE]),
        (SHARE_OF_HUGE, [each for each in numbers if abs(each) > HUGE]),
    ):
        choices = torch.tensor(used, dtype=torch.float64, device=given.device).to(given.dtype)
        choices = choices[choices.isfinite()]
        if choices.numel():
            drawn = torch.rand(given.shape, generator=generator, device=generator.device).to(given.device)
            # one random number decides whether an element is replaced, and by which number
            index = (drawn * (choices.numel() / share)).to(torch.int64)
            values = torch.where(drawn < share, choices[index.clamp_(max=choices.numel() - 1)], values)
    if leaf is None or leaf.keeps_places:
        values = torch.where(special_places(given), given.detach(), values)
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(values).requires_grad_(given.requires_grad)
