"""Puts floating-point numbers into the inputs that a module may treat in a special way, such as the code of a missing
reading. (torch)

Random draws never contain such numbers. Those that may be special are the numbers in the module's source, the numbers
among its attributes and arguments, and buffers and inputs of one element. They are written to random positions of the
inputs, some of them to whole rows (a sensor that gave no reading at all). A number may also be a limit, and the number
itself may be treated like those below it. So half of the positions get 1.5 times the number. If the reference does not
accept that, only numbers from the interval that the given values suggest are used (`_is_within`), and if it does not
accept those either, no very large ones.
"""

from __future__ import annotations

import ast
import math
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge import syntax
from kforge.problems.inputs.discrete import with_alike_rows
from kforge.problems.inputs.distributions import HUGE, in_order, overlaps, replacing
from kforge.problems.inputs.odd_rows import chance_of
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
MOST_USED, ALWAYS_USED = 24, 8
"""MOST_USED: most numbers that are used in a case. If more are known, the first ALWAYS_USED of them are used, and
others are chosen at random. Numbers that the source compares with something come first."""
DIMENSIONS = frozenset({"dim", "dims", "axis", "dim0", "dim1", "start_dim", "end_dim"})
"""Names of arguments that count dimensions."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "greater", "less", "not_equal", "isclose", "isin"})
"""Names of functions and methods that compare a tensor with a number."""
BEYOND = 1.5
"""Half of the positions get this many times a number, because the number may be a limit."""
ORDINARY = (-1.0, 0.0, 0.5, 1.0, 2.0)
"""Numbers that are not used where other cases contain them: in tensors whose given values suggest an interval with
them."""
LEAST_INTEGER = 3
"""Smaller positive integers are usually exponents and dimensions, and so not used."""


def named_numbers(instance: Instance) -> list[float]:
    """Return the floating-point numbers and negative integers in the problem's source, and other integers that it
    compares with something; none if it cannot be parsed. Those that it compares come first."""
    try:
        tree = syntax.parsed(instance.problem.source)
    except syntax.Unparsable:
        return []
    return _usable([*_compared(tree), *_of_source(tree)])


def _of_source(tree: ast.AST) -> Iterator[float]:
    """Yield the floating-point numbers of a syntax tree, and its negative integers that do not name a dimension."""
    named = (node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in DIMENSIONS)
    dimensions = {id(each) for node in named for each in ast.walk(node.value)}
    for node in ast.walk(tree):
        number = _literal(node)
        if number is not None and (type(number) is float or number < 0) and id(node) not in dimensions:
            yield _float(number)


def _compared(tree: ast.AST) -> Iterator[float]:
    """Yield the numbers that are compared with something, by an operator or a method, also by their names."""
    named: dict[str, list[int | float]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (number := _literal(node.value)) is not None:
            for target in node.targets:
                named.setdefault(_name(target), []).append(number)
    for node in ast.walk(tree):
        sides: Sequence[ast.expr] = ()
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and _name(node.func) in COMPARISONS:
            sides = node.args
        for side in sides:
            number = _literal(side)
            for each in named.get(_name(side), []) if number is None else [number]:
                if type(each) is float or each < 0 or each >= LEAST_INTEGER:
                    yield _float(each)


def _literal(node: ast.AST) -> int | float | None:
    """Return the number that an expression is written as; None if it is something else."""
    is_negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = node.operand if isinstance(node, ast.UnaryOp) and is_negative else node
    if not isinstance(value, ast.Constant) or type(value.value) not in (int, float):
        return None
    return -value.value if is_negative else value.value  # type: ignore[operator, return-value]


def _name(node: ast.AST) -> str:
    """Return the last name of an expression such as `MISSING` or `self.missing`; empty if it has none."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def numbers_of_module(model: nn.Module) -> list[float]:
    """Return the floating-point numbers and negative integers among the attributes of a module and its submodules, and
    the buffers of one element.

    Of modules that are not torch's own, other integers are returned as well; torch's have sizes there.
    """
    held = [value for module in model.modules() for value in vars(module).values()]
    foreign = (module for module in model.modules() if not type(module).__module__.startswith("torch."))
    whole = [
        each for module in foreign for each in vars(module).values() if type(each) is int and each >= LEAST_INTEGER
    ]
    single = [each.item() for each in model.buffers() if each.numel() == 1 and each.is_floating_point()]
    return _usable([*(number for value in held for number in _numbers_in(value)), *map(_float, whole), *single])


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
    """Return each finite number once."""
    return list(dict.fromkeys(each for each in numbers if math.isfinite(each)))


def variations(numbers: Sequence[float], structure: Structure, inputs: Sequence[Any]) -> list[Distribution]:
    """Return the distribution of the case, then milder ones; none if there is no number to use.

    `numbers` are those of the source and the module, `inputs` a sample of the inputs.
    """
    leaves = [leaf for leaf in structure.leaves if leaf.kind == "floating"]
    possible = [each for each in (*numbers, *_of_inputs(inputs)) if any(_is_worth_it(each, leaf) for leaf in leaves)]
    if not (possible or (numbers and any(map(_is_single, pytree.tree_leaves(list(inputs)))))):
        return []
    some_outside = any(not _is_within(each, leaf.low, leaf.high) for each in possible for leaf in leaves)
    within_intervals = partial(_special, numbers=numbers)
    wide = [partial(within_intervals, free=True)] if some_outside else []
    return [
        partial(wide[0] if wide else within_intervals, rows=True),
        *wide,
        within_intervals,
        *([partial(within_intervals, largest=HUGE)] if any(abs(each) > HUGE for each in possible) else []),
    ]


def _is_within(number: float, low: float, high: float) -> bool:
    """Return whether a number is in the interval that the given values, from `low` to `high`, suggest.

    The interval is [0, 1] if it contains all given values, otherwise the numbers from 0 on if these do, otherwise all
    numbers.
    """
    return not low >= 0 or 0 <= number <= (1 if high <= 1 else math.inf)


def _is_worth_it(number: float, leaf: Leaf) -> bool:
    """Return whether a number may show something in a tensor that other cases do not show."""
    return number not in ORDINARY or not _is_within(number, leaf.low, leaf.high)


def _special(
    inputs: Sequence[Any],
    generator: torch.Generator,
    structure: Structure | None = None,
    *,
    numbers: Sequence[float],
    free: bool = False,
    rows: bool = False,
    largest: float = math.inf,
) -> list[Any]:
    """Return the inputs with special numbers at random positions.

    `free`: also numbers outside the interval that the values of a tensor suggest. `rows`: also in whole rows, and in
    place of some inputs that are a single number. `largest`: the largest magnitude that is used.
    """
    possible = [each for each in dict.fromkeys([*numbers, *_of_inputs(inputs)]) if abs(each) <= largest]
    leaves = [leaf for leaf in structure.leaves if leaf.kind == "floating"] if structure is not None else []
    worth_it = [each for each in possible if any(_is_worth_it(each, leaf) for leaf in leaves)]
    first, others = worth_it[:ALWAYS_USED], worth_it[ALWAYS_USED:]
    drawn = torch.randperm(len(others), generator=generator, device=generator.device)[: MOST_USED - ALWAYS_USED]
    chosen = [*first, *(others[index] for index in drawn.tolist())]

    def replace(given: Tensor, leaf: Leaf | None, generator: torch.Generator) -> Tensor:
        if leaf is None or given.numel() < 2 or overlaps(given):
            return given
        if in_order(leaf) or kept_symmetry(given, leaf) is not None:
            return given
        low, high = (-math.inf, math.inf) if free else (leaf.low, leaf.high)
        for_leaf = [each for each in chosen if _is_worth_it(each, leaf)]
        used = [number for each in for_leaf for number in _with_larger(each) if _is_within(number, low, high)]
        return _with_numbers(given, leaf, generator, used, rows=rows)

    fresh = replacing(replace)(inputs, generator, structure)
    return _with_singles(fresh, generator, possible) if rows and possible else fresh


def _with_larger(number: float) -> tuple[float, float]:
    """Return a number that may be a limit, and a number beyond it."""
    return number, BEYOND * number


def _with_numbers(
    given: Tensor, leaf: Leaf, generator: torch.Generator, numbers: Sequence[float], *, rows: bool
) -> Tensor:
    """Return the tensor with these numbers at random positions and, with `rows`, in a few whole rows. Zeros, infinities
    and NaN whose positions belong to the problem stay."""
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
            if rows and share == SHARE:
                values = with_alike_rows(values, choices, generator)
    if leaf.keeps_places:
        values = torch.where(special_places(given), given.detach(), values)
    fresh = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return fresh.copy_(values).requires_grad_(given.requires_grad)


def _with_singles(inputs: list[Any], generator: torch.Generator, possible: Sequence[float]) -> list[Any]:
    """Return the inputs with one of these numbers in place of about half of the Python floats and of the tensors of one
    element: a scale of -1 may mean that there is none.

    The order of these inputs by size stays, because a lower limit must not exceed the upper one.
    """
    chance = chance_of(generator)
    singles = [each for each in pytree.tree_leaves(inputs) if _is_single(each)]
    given, fresh = [each.item() if isinstance(each, Tensor) else each for each in singles], list[float]()
    for number, each in zip(given, singles, strict=True):
        largest = torch.finfo(each.dtype).max if isinstance(each, Tensor) else math.inf
        choices = [special for special in possible if abs(special) <= largest]
        fresh.append(chance.choice(choices) if choices and chance.random() < 0.5 else number)
    if any((a < b, a == b) != (c < d, c == d) for (a, c), (b, d) in combinations(zip(given, fresh, strict=True), 2)):
        return inputs
    following = iter(fresh)

    def replaced(value: Any) -> Any:
        if not _is_single(value):
            return value
        number = next(following)
        if not isinstance(value, Tensor):
            return number
        return torch.full_like(value, number).requires_grad_(value.requires_grad)

    return list(pytree.tree_map(replaced, inputs))


def _is_single(value: Any) -> bool:
    """Return whether a value is a Python float, or a floating-point tensor of one element."""
    return type(value) is float or (isinstance(value, Tensor) and value.is_floating_point() and value.numel() == 1)
