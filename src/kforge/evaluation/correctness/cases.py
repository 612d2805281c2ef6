"""Draws the cases on which a program is judged: their names, their order and their inputs. (torch)

The order is secret, so that a program cannot tell the distribution of a call from its number. If the reference does not
accept a case, milder ones are tried instead.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.constants import AS_GIVEN_CASES, ODD_SHARE, WEIGHT_CHANGES
from kforge.evaluation.correctness.case import (
    AS_GIVEN,
    COPIED,
    INTEGERS,
    LARGER,
    OF_STATE,
    SPECIAL,
    UNORDERED,
    Case,
    CaseGroup,
    as_given_name,
    as_given_number,
    is_whole,
)
from kforge.evaluation.large_problems.pieces import part_of
from kforge.evaluation.large_problems.piecewise import redrawn
from kforge.evaluation.reference.reference import subseed
from kforge.problems.inputs import imposed_structure, mark_counts, other_ranges, scalars
from kforge.problems.inputs.discrete import DISCRETE, UNIFORM_MASKS, is_free_mask, is_mask
from kforge.problems.inputs.distributions import DISTRIBUTIONS, MILDER
from kforge.problems.inputs.mark_counts import MARK_COUNTS
from kforge.problems.inputs.odd_rows import MILDER_ODD, ODD, spoil_sets
from kforge.problems.inputs.scalars import SCALARS
from kforge.problems.inputs.sorted_inputs import sorted_inputs, unordered
from kforge.problems.inputs.special_floats import SPECIAL_FLOATS, named_numbers, numbers_of_module
from kforge.problems.inputs.special_floats import variations as with_special_floats
from kforge.problems.inputs.special_integers import (
    comparable,
    integers_of_buffers,
    larger_integers,
    special_integers,
    with_copied,
    with_larger,
    with_special,
    without_below,
)
from kforge.problems.inputs.structure import tensors_of
from kforge.problems.tensors import HOST, cloned, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn

    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.problems.inputs.discrete import Variation
    from kforge.problems.inputs.distributions import Distribution
    from kforge.problems.inputs.structure import Structure
    from kforge.problems.instance import Instance

MOST_SINGLY = 4
"""Most inputs that are varied one at a time, if the reference does not accept all of them varied together."""
LAST_BLOCKS = 32
"""Number of timed blocks whose inputs can be drawn again after a program failed in one."""
PART_ROWS = 16
"""About how many rows of a large input are examined for its structure."""


class CaseSource:
    """Draws the inputs of one program's cases and timed calls, from its secret."""

    def __init__(self, instance: Instance, secret: str, cut: Cut | None = None) -> None:
        """With `cut`, inputs are large, and are drawn piece by piece."""
        self.instance = instance
        self.secret = secret
        self.cut = cut
        self.odd_rows: str | None = None
        """Kind of odd rows that timed inputs may have: `wild` or `mild`. None: they have none, or it is not known
        yet."""
        self.current_model: Callable[[], nn.Module] | None = None
        """Returns the reference's module with its present weights, whose buffers may hold special numbers. None: they
        are not used."""
        self._timed_blocks: deque[tuple[int, int]] = deque(maxlen=LAST_BLOCKS)
        """Pairs of number and calls of the last timed blocks, so that their inputs can be drawn again."""
        self.varied: set[int] = set()
        """Positions of the floating-point inputs that had other values in judged cases."""
        self.varied_scalars: set[int] = set()
        """Positions of the Python numbers and flags that had other values in judged cases."""
        self.negated_scalars: set[int] = set()
        """Positions of the Python numbers that had another sign in judged cases."""
        self.taken: dict[tuple[str, int | None], Case] = {}
        """Judged cases with other integers, masks, zeros, orders or Python numbers, without their inputs, by name and
        part. Timed calls are varied in the same ways (`timing/varied_calls.py`)."""

    def order(self, state: int) -> tuple[list[str], list[int]]:
        """Return the names of all cases in order, and the positions before which the weights change.

        The first case has inputs as given. So has the case after each weight change except the first.
        """
        chance = random.Random(subseed(self.secret, "order", state))  # noqa: S311 - as secret as its seed
        given = [as_given_name(index) for index in range(AS_GIVEN_CASES)]
        others = [name for name in DISTRIBUTIONS if name != AS_GIVEN]
        others += [*ODD, *self._discrete(), *self._imposed(), *other_ranges.names(self.structure)]
        others += scalars.alone(self._sample) if self.structure.scalars else []
        chance.shuffle(others)
        part = len(others) // WEIGHT_CHANGES
        starts = [chance.randrange(max(1, number * part), (number + 1) * part) for number in range(WEIGHT_CHANGES)]
        names, changes = given[:1], list[int]()
        for number, other in enumerate(others):
            if number in starts:
                changes.append(len(names))
                names += given[len(changes) - 1 : len(changes)] if len(changes) > 1 else []
            names.append(other)
        return names, changes

    @cached_property
    def structure(self) -> Structure:
        """The structure of the inputs (`problems/inputs/structure.py`). For large inputs, that of a part."""
        return self._part.structure

    @cached_property
    def _part(self) -> Instance:
        return self.instance if self.cut is None else part_of(self.instance, self.cut, PART_ROWS)

    def sample(self) -> list[Any]:
        """Return inputs as given, always the same; for large inputs only a part."""
        inputs: list[Any] = cloned(self._sample)
        return inputs

    @cached_property
    def _sample(self) -> list[Any]:
        return self._part.inputs(subseed(self.secret, "sample"))

    def part_of(self, inputs: list[Any]) -> list[Any]:
        """Return these inputs; for large inputs only the first rows."""
        return inputs if self.cut is None else list(self.cut.inputs(inputs, 0, min(PART_ROWS, self.cut.size)))

    def _discrete(self) -> list[str]:
        """Return the names of the cases with other integers, masks, zeros, orders or Python numbers that apply to these
        inputs."""
        structure = self.structure
        has = {
            "other_integers": structure.has("integer", "boolean"),
            "skewed_integers": structure.has("integer", "boolean"),
            "all_alike": structure.has("integer", "boolean"),
            UNIFORM_MASKS: any(map(is_free_mask, structure.leaves)),
            "flipped_masks": any(map(is_mask, structure.leaves)),
            "moved_zeros": structure.has_moving_places,
            scalars.OTHER: bool({bool, float, complex} & set(structure.scalars)),
            scalars.ORDINARY: bool(structure.scalars) and bool(scalars.extraordinary(self._sample)),
            **{name: bool(places) for name, places in self.mark_counts.items()},
        }
        has |= {SPECIAL: bool(self._special), LARGER: bool(self._larger), UNORDERED: bool(self.sorted)}
        has |= {COPIED: bool(comparable(structure)), SPECIAL_FLOATS: bool(self._special_floats())}
        return [name for name in has if has[name]]

    def _imposed(self) -> list[str]:
        """Return the names of the cases that remove a structure such as symmetry. Large inputs have none, to save
        memory."""
        return imposed_structure.names(self.structure, self._sample) if self.cut is None else []

    @cached_property
    def _special(self) -> dict[int, list[int]]:
        """The special integers of each integer input, by position."""
        return special_integers(self.instance, self.sample(), self.structure)

    def _with_special(self) -> list[Variation]:
        """Return the variations with special integers: first with whole rows of them, and at last none below the
        range."""
        current = [] if self.current_model is None else integers_of_buffers(self.current_model())
        milder = without_below(self._special, self.structure)
        every = [self._special, *([milder] if milder and milder != self._special else [])]
        whole_rows = partial(with_special, special=self._special, current=current, rows=True)
        return [whole_rows, *(partial(with_special, special=special, current=current) for special in every)]

    def _special_floats(self) -> list[Distribution]:
        """Return the distributions with special floating-point numbers; none if no number may be special."""
        state = [] if self.current_model is None else numbers_of_module(self.current_model())
        return with_special_floats([*self._named_numbers, *state], self.structure, self._sample)

    @cached_property
    def _named_numbers(self) -> list[float]:
        return named_numbers(self.instance)

    @cached_property
    def mark_counts(self) -> dict[str, list[int]]:
        """For each case with another number of true elements in masks, the positions of those masks
        (`mark_counts.py`)."""
        return mark_counts.taken(self.instance, self.sample(), self.structure)

    @cached_property
    def sorted(self) -> list[int]:
        """Positions of inputs that are ascending in every draw, although the module accepts any order."""
        return sorted_inputs(self.instance, self.sample(), self.structure)

    @property
    def ordered(self) -> list[int]:
        """Positions of inputs that are ascending in every draw. Integers that never vary are left out."""
        leaves = enumerate(self.structure.leaves)
        return [place for place, leaf in leaves if leaf.ascending and (leaf.kind == "floating" or leaf.varies)]

    @property
    def floating(self) -> set[int]:
        """Positions of floating-point inputs."""
        return {place for place, leaf in enumerate(self.structure.leaves) if leaf.kind == "floating"}

    @property
    def has_fixed_signs(self) -> bool:
        """Whether a Python number had the same sign in all judged cases."""
        return bool(self.structure.scalars) and not scalars.signed(self._sample) <= self.negated_scalars

    @cached_property
    def limits(self) -> dict[int, tuple[int, int] | None]:
        """The range of integers beyond the given ones, by position; None if the module sets no limit
        (`larger_integers`)."""
        return larger_integers(self.instance, self.sample(), self.structure)

    @property
    def _larger(self) -> dict[int, tuple[int, int]]:
        return {place: ends for place, ends in self.limits.items() if ends is not None}

    def draw_all(self, state: int, names: list[str]) -> Iterator[tuple[str, Iterator[Case]]]:
        """Yield each name with the cases of `draw`. On a host, a thread draws the next case while one is judged."""
        if self.instance.device != HOST or self.cut is not None:  # quick there, or too large to draw two
            yield from ((name, self.draw(state, name)) for name in names)
            return
        with ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(self._begun, state, names[0])
            for name, following in zip(names, [*names[1:], None], strict=True):
                cases = ahead.result()
                if following is not None:
                    ahead = thread.submit(self._begun, state, following)
                yield name, cases

    def _begun(self, state: int, name: str) -> Iterator[Case]:
        """Return the cases of `draw`, with the first one already drawn unless it depends on the present state."""
        return self.draw(state, name) if name in OF_STATE else begun(self.draw(state, name))[1]

    def draw(self, state: int, name: str) -> Iterator[Case]:
        """Yield the case of that name, then milder ones. Each is drawn when it is requested."""
        if name.startswith(AS_GIVEN):
            yield self.as_given(state, as_given_number(name))
            return
        if name == other_ranges.LARGE_WEIGHTS:
            yield Case(name, self.instance.inputs(subseed(self.secret, name, state)), self._seed(state, name))
            return
        group = CaseGroup()
        for number, (part, variation) in enumerate(self._variations(name)):
            if part is not None and (part in group.judged_parts or not self._is_split(name, group)):
                continue
            seed = subseed(self.secret, "distribution", state, name, number)
            given = self.instance.inputs(seed)
            generator = torch.Generator(self.instance.device).manual_seed(seed)
            inputs = redrawn(variation, given, generator, None if is_whole(name) else self.cut)
            has_scalars = _is_of_scalars(name) or name == SPECIAL_FLOATS
            changed = scalars.changed_scalars(given, inputs) if has_scalars else frozenset()
            if self._must_differ(name, part) and not changed and same(given, inputs):
                continue
            floats = (
                self._replaced(given, inputs) if self.cut is None else None
            )  # large inputs are overwritten in place
            alike = given if imposed_structure.is_imposed(name) else None
            del given  # so that large inputs free their memory when they are moved to the worker
            risky = name in INTEGERS and any(leaf.is_one_number and not leaf.high for leaf in self.structure.leaves)
            risky |= name in (SPECIAL, LARGER)
            chance, mild = self._seed(state, name), number > 0
            yield Case(
                name,
                inputs,
                chance,
                mild=mild,
                risky=risky,
                part=part,
                scalars=changed,
                floats=floats,
                variation=variation,
                alike=alike,
                group=group,
            )

    def _replaced(self, given: list[Any], inputs: list[Any]) -> frozenset[int]:
        """Return the positions of the tensors that a variation has replaced."""
        each = zip(self.structure.places_of(given), tensors_of(given), tensors_of(inputs), strict=True)
        return frozenset(place for place, one, other in each if one is not other and place is not None)

    def _must_differ(self, name: str, part: int | None) -> bool:
        """Return whether a case is dropped if its inputs equal the given ones."""
        if name in DISCRETE or _is_of_scalars(name) or name in (COPIED, SPECIAL_FLOATS):
            return True
        return imposed_structure.is_imposed(name) or (
            self.cut is None and (part is not None or other_ranges.is_beyond(name))
        )

    def _is_split(self, name: str, group: CaseGroup) -> bool:
        """Return whether the case of this name also varies inputs one at a time, if varying all together could judge no
        program."""
        return group.refused or _is_of_scalars(name) or other_ranges.is_beyond(name)

    def as_given(self, state: int, index: int) -> Case:
        """Return the case number `index` with inputs as given."""
        name = as_given_name(index)
        return Case(name, self.instance.inputs(subseed(self.secret, "inputs", state, index)), self._seed(state, name))

    def _seed(self, state: int, name: str) -> int | None:
        return subseed(self.secret, "random", state, name) if self.instance.draws_random_numbers else None

    def _variations(self, name: str) -> list[tuple[int | None, Distribution]]:
        """Return the variations of the case of that name and of milder ones, then variations of one input, with its
        position."""
        together, singly = self._together(name), self._singly(name)
        known = self.structure
        return [
            *((None, partial(one, structure=known)) for one in together),
            *((place, partial(one, structure=known)) for place in singly for one in singly[place]),
        ]

    def _together(self, name: str) -> list[Distribution | Variation]:
        """Return the variations of all inputs together: first that of the case, then milder ones."""
        if name in DISCRETE:
            return list(DISCRETE[name])
        if name in SCALARS:
            return list(SCALARS[name])
        if scalars.is_alone(name):
            return [*scalars.variations_alone(name, self._sample)]
        if name in MARK_COUNTS:
            return [partial(mark_counts.with_counts, name=name, places=self.mark_counts[name])]
        if name == SPECIAL:
            return [*self._with_special()]
        if name == COPIED:
            return [with_copied]
        if name == SPECIAL_FLOATS:
            return [*self._special_floats()]
        if name == LARGER:
            return [partial(with_larger, larger=self._larger)]
        if name == UNORDERED:
            return [partial(unordered, places=self.sorted)]
        if imposed_structure.is_imposed(name):
            return [imposed_structure.variation(name)]
        if other_ranges.is_beyond(name):
            return [*other_ranges.variations(name, self.structure)]
        return [*self._of_distribution(name)]

    def _of_distribution(self, name: str) -> list[Distribution]:
        """Return the distribution of that name, then its milder form if it has one."""
        drawn, milder = {**DISTRIBUTIONS, **ODD}, {**MILDER, **MILDER_ODD}
        return [drawn[name], *([milder[name]] if name in milder else [])]

    def _singly(self, name: str) -> Mapping[int, Sequence[Distribution | Variation]]:
        """Return the variations of one input at a time, by its position. If there are many inputs, only some are
        varied."""
        if scalars.is_alone(name):
            return scalars.singly_alone(name, self._sample)
        if other_ranges.is_beyond(name):
            return other_ranges.singly(name, self.structure)
        if name == scalars.ORDINARY:
            return scalars.ordinary_singly(self._sample)
        places = sorted(self.floating)
        if is_whole(name) or imposed_structure.is_imposed(name) or len(places) < 2 or name == SPECIAL_FLOATS:
            return {}
        first = subseed(self.secret, "singly", name) % len(places)
        chosen = [*places[first:], *places[:first]][:MOST_SINGLY]
        drawn = self._of_distribution(name)
        return {place: [partial(other_ranges.only, [place], one) for one in drawn] for place in chosen}

    def learn(self, case: Case) -> None:
        """Note from a judged case which inputs were varied, and which odd rows timed inputs may have."""
        self.varied_scalars |= case.scalars
        if case.is_varied_when_timed and self.cut is None:  # large inputs are timed as given
            self.taken[case.name, case.part] = replace(case, inputs=[], alike=None)
        if other_ranges.kind_of(case.name) == scalars.NEGATED:
            self.negated_scalars |= case.scalars
        if case.part is not None:
            case.group.judged_parts.add(case.part)
            if not _is_of_scalars(case.name):
                self.varied.add(case.part)
            return
        if case.name in DISTRIBUTIONS or case.name in ODD:
            self.varied |= self.floating if case.floats is None else self.floating & case.floats
        if case.name == "odd_rows" and self.cut is None:  # large inputs are timed as given
            self.odd_rows = "mild" if case.mild else "wild"

    def timed(self, block: int, calls: int) -> list[list[Any]]:
        """Return the inputs of the calls of a timed block. A share of the calls has a few odd rows at random
        positions."""
        self._timed_blocks.append((block, calls))
        seed = subseed(self.secret, "timed", block)
        sets = self.instance.input_sets(seed, calls)
        if self.odd_rows is not None:
            generator = torch.Generator(self.instance.device).manual_seed(seed)
            spoil_sets(sets, self.structure, generator, mild=self.odd_rows == "mild", share=ODD_SHARE)
        return sets

    def varied_again(self, case: Case, number: int) -> Case | None:
        """Return new inputs as given, changed by the variation of a judged case; None if it changes nothing in them.

        `number` is that of the call, and is used once.
        """
        assert case.variation is not None
        seed = subseed(self.secret, "varied", number)
        given = self.instance.inputs(seed)
        inputs = case.variation(given, torch.Generator(self.instance.device).manual_seed(seed))
        if same(given, inputs) and not scalars.changed_scalars(given, inputs):
            return None
        alike = given if imposed_structure.is_imposed(case.name) else None
        return replace(case, inputs=inputs, alike=alike)

    def last_odd_sets(self) -> Iterator[list[Any]]:
        """Yield those inputs of the last timed blocks that had odd rows. They are drawn again."""
        yield from (odd for odd, _ in self._odd_and_plain())

    def without_odd_rows(self, inputs: list[Any]) -> list[Any] | None:
        """Return the inputs of a call of the last timed blocks as they were before odd rows were written into them.

        Returns None if these inputs have no odd rows.
        """
        return next((plain for odd, plain in self._odd_and_plain() if same(odd, inputs)), None)

    def _odd_and_plain(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield the inputs with odd rows of the last timed blocks, drawn again, with and without these rows."""
        if self.odd_rows is None:
            return
        for block, calls in list(self._timed_blocks):
            given = self.instance.input_sets(subseed(self.secret, "timed", block), calls)
            yield from (pair for pair in zip(self.timed(block, calls), given, strict=True) if not same(*pair))


def _is_of_scalars(name: str) -> bool:
    """Return whether the case of this name changes only Python numbers and flags."""
    return name in SCALARS or scalars.is_alone(name)


def begun(cases: Iterator[Case]) -> tuple[list[Any] | None, Iterator[Case]]:
    """Draw the first case of an iterator. Returns its inputs (None if there is no case), and all the cases again."""
    first = next(cases, None)
    return (None, cases) if first is None else (first.inputs, chain([first], cases))
