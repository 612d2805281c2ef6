"""Draws the cases on which a program is judged: their names, their order, and their inputs. (torch)

The order is secret, so a program cannot tell the distribution of a call from its number. Where the reference cannot
take a case, milder ones are tried in its place.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.constants import AS_GIVEN_CASES, ODD_SHARE, WEIGHT_CHANGES
from kforge.evaluation.large_problems.pieces import part_of
from kforge.evaluation.large_problems.piecewise import redrawn
from kforge.evaluation.reference.reference import subseed
from kforge.problems.inputs import imposed_structure, mark_counts, other_ranges, scalars
from kforge.problems.inputs.discrete import DISCRETE, is_mask
from kforge.problems.inputs.distributions import DISTRIBUTIONS, MILDER_ROWS
from kforge.problems.inputs.mark_counts import MARK_COUNTS
from kforge.problems.inputs.odd_rows import MILDER_ODD, ODD, spoil_sets
from kforge.problems.inputs.scalars import SCALARS
from kforge.problems.inputs.sorted_inputs import sorted_inputs, unordered
from kforge.problems.inputs.special_integers import larger_integers, special_integers, with_larger, with_special
from kforge.problems.inputs.structure import tensors_of
from kforge.problems.tensors import HOST, cloned, same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.problems.inputs.discrete import Variation
    from kforge.problems.inputs.distributions import Distribution
    from kforge.problems.inputs.structure import Structure
    from kforge.problems.instance import Instance

AS_GIVEN = "as_given"
INTEGERS = ("other_integers", "skewed_integers", "flipped_masks")
"""Cases with other integers and masks than given."""
SPECIAL = "special_integers"
"""The case with special integers, which the module may treat in another way than others."""
LARGER = "larger_integers"
"""The case with integers beyond the given ones, larger or lower, as far as the module takes them."""
UNORDERED = "unordered"
"""The case with unsorted inputs, where the given inputs are sorted and the module sorts them itself."""
WHOLE = (*DISCRETE, *SCALARS, *MARK_COUNTS, SPECIAL, LARGER, UNORDERED)
"""Cases with other integers, masks, zeros, orders or Python numbers. They vary whole inputs, also where inputs are
large."""
MOST_SINGLY = 4
"""Most inputs that are varied one at a time, where the reference refuses to have all of them varied together."""
LAST_BLOCKS = 32
"""Number of timed blocks that are drawn again where a program fails in one: blocks of one call are drawn in groups."""
PART_ROWS = 16
"""Rows of a large input in which its structure is looked for; a few more may be taken."""


@dataclass
class CaseGroup:
    """The state of the cases of one name."""

    refused: bool = False
    """Whether the reference has no result for one of them."""
    judged_parts: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Case:
    name: str
    inputs: list[Any]
    seed: int | None = None
    """Seed of the random numbers that the module draws in this call, where the reference draws some."""
    mild: bool = False
    """Whether it replaces a case that the reference did not take."""
    risky: bool = False
    """Whether integers are larger than any given one. An index out of bounds ruins a device, so it is tried on the host
    first."""
    part: int | None = None
    """Position of the only tensor (or scalar) that is varied, where no program is judged by all of them together."""
    scalars: frozenset[int] = frozenset()
    """Positions of the Python numbers and flags that differ from the given ones."""
    floats: frozenset[int] | None = None
    """Positions of the tensors that differ from the given ones; None where that is not known."""
    alike: list[Any] | None = None
    """Inputs for which the reference must give the same result; otherwise no program is judged by this case."""
    group: CaseGroup = field(default_factory=CaseGroup)

    @property
    def is_as_given(self) -> bool:
        return self.name.startswith(AS_GIVEN)

    @property
    def is_discrete(self) -> bool:
        """Whether integers, masks or zeros differ from the given ones: then the reference's result must be finite,
        too."""
        return self.name in WHOLE or imposed_structure.is_imposed(self.name)

    @property
    def is_beyond(self) -> bool:
        """Whether inputs lie beyond the given values: only gross errors count there."""
        return other_ranges.is_beyond(self.name)

    @property
    def is_scaled(self) -> bool:
        """Whether inputs have an unlikely magnitude."""
        return other_ranges.kind_of(self.name) in (other_ranges.ENORMOUS, other_ranges.MINUTE)


class CaseSource:
    """Draws the inputs of one program's cases, and of its timed calls, from its secret."""

    def __init__(self, instance: Instance, secret: str, cut: Cut | None = None) -> None:
        """`cut`: inputs are drawn piece by piece, because they are large."""
        self.instance = instance
        self.secret = secret
        self.cut = cut
        self.odd_rows: str | None = None
        """The kind of odd rows (`wild` or `mild`) that timed inputs may have; None before it is known."""
        self._timed_blocks: deque[tuple[int, int]] = deque(maxlen=LAST_BLOCKS)
        """Number and calls of the timed blocks that were drawn last."""
        self.varied: set[int] = set()
        """Positions of the floating-point inputs that had other values in judged cases."""
        self.varied_scalars: set[int] = set()
        """Positions of the Python numbers and flags that had other values in judged cases."""

    def order(self, state: int) -> tuple[list[str], list[int]]:
        """Return the names of all cases, and the positions before which weights change.

        The first case is as given, and so is the one after each change but the first, which changes all weights.
        """
        chance = random.Random(subseed(self.secret, "order", state))  # noqa: S311 - as secret as its seed
        given = [f"{AS_GIVEN} #{index}" for index in range(AS_GIVEN_CASES)]
        others = [name for name in DISTRIBUTIONS if name != AS_GIVEN]
        others += [*ODD, *self._discrete(), *self._imposed(), *other_ranges.names(self.structure)]
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
        """The structure of the inputs; for large inputs, of a part of them."""
        return self._part.structure

    @cached_property
    def _part(self) -> Instance:
        return self.instance if self.cut is None else part_of(self.instance, self.cut, PART_ROWS)

    def sample(self) -> list[Any]:
        """Return inputs as given, always the same ones; a part where they are large."""
        inputs: list[Any] = cloned(self._sample)
        return inputs

    @cached_property
    def _sample(self) -> list[Any]:
        return self._part.inputs(subseed(self.secret, "sample"))

    def part_of(self, inputs: list[Any]) -> list[Any]:
        """Return these inputs; only the first rows where they are large."""
        return inputs if self.cut is None else list(self.cut.inputs(inputs, 0, min(PART_ROWS, self.cut.size)))

    def _discrete(self) -> list[str]:
        structure = self.structure
        has = {
            "other_integers": structure.has("integer", "boolean"),
            "skewed_integers": structure.has("integer", "boolean"),
            "flipped_masks": any(map(is_mask, structure.leaves)),
            "moved_zeros": structure.has_moving_places,
            scalars.OTHER: bool({bool, float, complex} & set(structure.scalars)),
            scalars.ORDINARY: bool(structure.scalars) and bool(scalars.extraordinary(self._sample)),
            **{name: bool(places) for name, places in self.mark_counts.items()},
        }
        has |= {SPECIAL: bool(self._special), LARGER: bool(self._larger), UNORDERED: bool(self.sorted)}
        return [name for name in has if has[name]]

    def _imposed(self) -> list[str]:
        """The structures that cases remove. Large inputs keep theirs, since two results would have to be held."""
        return imposed_structure.names(self.structure, self._sample) if self.cut is None else []

    @cached_property
    def _special(self) -> dict[int, list[int]]:
        return special_integers(self.instance, self.sample(), self.structure)

    @cached_property
    def mark_counts(self) -> dict[str, list[int]]:
        """The positions of the masks that have another number of marks in the case of each name (`mark_counts.py`)."""
        return mark_counts.taken(self.instance, self.sample(), self.structure)

    @cached_property
    def sorted(self) -> list[int]:
        """Positions of inputs in ascending order that the module sorts."""
        return sorted_inputs(self.instance, self.sample(), self.structure)

    @property
    def ordered(self) -> list[int]:
        """Positions of inputs in ascending order; for integers that never vary this is known."""
        leaves = enumerate(self.structure.leaves)
        return [place for place, leaf in leaves if leaf.ascending and (leaf.kind == "floating" or leaf.varies)]

    @property
    def floating(self) -> set[int]:
        """Positions of floating-point inputs."""
        return {place for place, leaf in enumerate(self.structure.leaves) if leaf.kind == "floating"}

    @cached_property
    def limits(self) -> dict[int, tuple[int, int] | None]:
        """The range that integers beyond the given ones may have, by the position of their tensor
        (`larger_integers`)."""
        return larger_integers(self.instance, self.sample(), self.structure)

    @property
    def _larger(self) -> dict[int, tuple[int, int]]:
        return {place: ends for place, ends in self.limits.items() if ends is not None}

    def draw_all(self, state: int, names: list[str]) -> Iterator[tuple[str, Iterator[Case]]]:
        """Yield each name with the cases of `draw`. On a host a thread draws while the case before is judged."""
        if self.instance.device != HOST or self.cut is not None:  # quick there, and memory may be short
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
        """Like `draw`, with the first case already drawn."""
        return begun(self.draw(state, name))[1]

    def draw(self, state: int, name: str) -> Iterator[Case]:
        """Yield the case of that name, then milder ones; each is drawn when it is requested."""
        if name.startswith(AS_GIVEN):
            yield self.as_given(state, int(name.rpartition("#")[2]))
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
            inputs = redrawn(variation, given, generator, None if name in WHOLE else self.cut)
            changed = scalars.changed_scalars(given, inputs) if name in SCALARS else frozenset()
            if self._must_differ(name, part) and not changed and same(given, inputs):
                continue
            floats = _replaced(given, inputs) if self.cut is None else None  # large inputs are written over
            alike = given if imposed_structure.is_imposed(name) else None
            del given  # large inputs are moved, and free their memory then
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
                alike=alike,
                group=group,
            )

    def _must_differ(self, name: str, part: int | None) -> bool:
        """Return whether inputs as given are no case: nothing in them can vary, or their dtype has no other values."""
        if name in DISCRETE or name in SCALARS:
            return True
        return imposed_structure.is_imposed(name) or (
            self.cut is None and (part is not None or other_ranges.is_beyond(name))
        )

    def _is_split(self, name: str, group: CaseGroup) -> bool:
        """Whether inputs are varied one at a time where all together judge no program: elsewhere milder cases do."""
        return group.refused or name == scalars.ORDINARY or other_ranges.is_beyond(name)

    def as_given(self, state: int, index: int) -> Case:
        name = f"{AS_GIVEN} #{index}"
        return Case(name, self.instance.inputs(subseed(self.secret, "inputs", state, index)), self._seed(state, name))

    def _seed(self, state: int, name: str) -> int | None:
        return subseed(self.secret, "random", state, name) if self.instance.draws_random_numbers else None

    def _variations(self, name: str) -> list[tuple[int | None, Distribution]]:
        """The variations for the case of that name and milder ones, then those of one input only, by its position."""
        together, singly = self._together(name), self._singly(name)
        known = self.structure
        return [
            *((None, partial(one, structure=known)) for one in together),
            *((place, partial(one, structure=known)) for place in singly for one in singly[place]),
        ]

    def _together(self, name: str) -> list[Distribution | Variation]:
        if name in DISCRETE:
            return list(DISCRETE[name])
        if name in SCALARS:
            return list(SCALARS[name])
        if name in MARK_COUNTS:
            return [partial(mark_counts.with_counts, name=name, places=self.mark_counts[name])]
        if name == SPECIAL:
            return [partial(with_special, special=self._special)]
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
        several = {
            "mixed_rows": [DISTRIBUTIONS["mixed_rows"], MILDER_ROWS],
            **{odd: [ODD[odd], MILDER_ODD[odd]] for odd in ODD},
        }
        return several.get(name) or [DISTRIBUTIONS[name]]

    def _singly(self, name: str) -> Mapping[int, Sequence[Distribution | Variation]]:
        """Return the variation of one input each, by its position. Where there are many, only some, which depend on the
        name."""
        if other_ranges.is_beyond(name):
            return other_ranges.singly(name, self.structure)
        if name == scalars.ORDINARY:
            return scalars.ordinary_singly(self._sample)
        places = sorted(self.floating)
        if name in WHOLE or imposed_structure.is_imposed(name) or len(places) < 2:
            return {}
        first = subseed(self.secret, "singly", name) % len(places)
        chosen = [*places[first:], *places[:first]][:MOST_SINGLY]
        drawn = self._of_distribution(name)
        return {place: [partial(other_ranges.only, [place], one) for one in drawn] for place in chosen}

    def learn(self, case: Case) -> None:
        """Learn from a case that the reference has taken what timed inputs may be like."""
        self.varied_scalars |= case.scalars
        if case.part is not None:
            case.group.judged_parts.add(case.part)
            if case.name not in SCALARS:
                self.varied.add(case.part)
            return
        if case.name in DISTRIBUTIONS or case.name in ODD:
            self.varied |= self.floating if case.floats is None else self.floating & case.floats
        if case.name == "odd_rows" and self.cut is None:  # large inputs are timed as given
            self.odd_rows = "mild" if case.mild else "wild"

    def timed(self, block: int, calls: int) -> list[list[Any]]:
        """Return the inputs of a timed block. A share of its calls has a few odd rows at random positions."""
        self._timed_blocks.append((block, calls))
        seed = subseed(self.secret, "timed", block)
        sets = self.instance.input_sets(seed, calls)
        if self.odd_rows is not None:
            generator = torch.Generator(self.instance.device).manual_seed(seed)
            spoil_sets(sets, self.structure, generator, mild=self.odd_rows == "mild", share=ODD_SHARE)
        return sets

    def last_odd_sets(self) -> Iterator[list[Any]]:
        """Yield the inputs with odd rows among the last timed blocks, drawn again."""
        if self.odd_rows is None:
            return
        for block, calls in list(self._timed_blocks):
            given = self.instance.input_sets(subseed(self.secret, "timed", block), calls)
            yield from (odd for odd, plain in zip(self.timed(block, calls), given, strict=True) if not same(odd, plain))


def _replaced(given: list[Any], inputs: list[Any]) -> frozenset[int]:
    """Return the positions of the tensors that are not the given ones. A variation returns those that it leaves."""
    both = zip(tensors_of(given), tensors_of(inputs), strict=False)
    return frozenset(place for place, (one, other) in enumerate(both) if one is not other)


def begun(cases: Iterator[Case]) -> tuple[list[Any] | None, Iterator[Case]]:
    """Return the inputs of the first of these cases, which is drawn now, and all of the cases."""
    first = next(cases, None)
    return (None, cases) if first is None else (first.inputs, chain([first], cases))
