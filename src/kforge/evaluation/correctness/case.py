"""One case on which a program is judged: its inputs, their kind by name, and what is known about them. (torch)"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.problems.inputs import imposed_structure, other_ranges, scalars
from kforge.problems.inputs.discrete import DISCRETE
from kforge.problems.inputs.mark_counts import MARK_COUNTS
from kforge.problems.inputs.scalars import SCALARS
from kforge.problems.inputs.special_floats import SPECIAL_FLOATS

if TYPE_CHECKING:
    from kforge.problems.inputs.distributions import Distribution

AS_GIVEN = "as_given"
"""Beginning of the names of cases whose inputs come from the problem's own `get_inputs`."""
INTEGERS = ("other_integers", "skewed_integers", "all_alike", "flipped_masks")
"""Names of cases with other integers than given, and other masks. `uniform_masks` is not among them, as it changes no
integers."""
SPECIAL = "special_integers"
"""Name of the case with special integers, such as -1, which the module may treat differently."""
LARGER = "larger_integers"
"""Name of the case with integers outside the given range, as far as the module accepts them."""
COPIED = "copied_integers"
"""Name of the case in which integers of each input are copied into other ones."""
OF_STATE = (SPECIAL, SPECIAL_FLOATS)
"""Names of the cases whose inputs contain numbers of the module's present state. They must not be drawn before the
weights change."""
UNORDERED = "unordered"
"""Name of the case with unsorted inputs, if the given inputs are sorted but the module does not need that."""
ROWS_WHEN_TIMED = (SPECIAL_FLOATS, "positive", "rising")
"""Names of the cases whose kinds of rows occur in timed calls only in varied blocks (`timing/varied_calls.py`)."""
WHOLE = (*DISCRETE, *SCALARS, *MARK_COUNTS, SPECIAL, LARGER, COPIED, UNORDERED)
"""Names of cases with other integers, masks, zeros, orders or Python numbers. Their inputs are drawn as a whole, even
if they are large."""


def as_given_name(index: int) -> str:
    """Return the name of the case number `index` with inputs as given."""
    return f"{AS_GIVEN} #{index}"


def as_given_number(name: str) -> int:
    """Return the number in such a name."""
    return int(name.rpartition("#")[2])


@dataclass
class CaseGroup:
    """What is known about all cases of one name."""

    refused: bool = False
    """Whether the reference failed on a case of this name."""
    judged_parts: set[int] = field(default_factory=set)
    """Positions of the inputs that were varied alone in a judged case of this name."""


@dataclass(frozen=True)
class Case:
    """The inputs of one call by which a program is judged."""

    name: str
    inputs: list[Any]
    seed: int | None = None
    """Random seed for the call; None if the reference draws no random numbers."""
    mild: bool = False
    """Whether this case replaces one that the reference did not accept."""
    risky: bool = False
    """Whether it has integers larger than any given one. They are tried on the host first, because an index out of
    bounds breaks a device's context."""
    part: int | None = None
    """Position of the only input that is varied; None if all are."""
    scalars: frozenset[int] = frozenset()
    """Positions of the Python numbers and flags that differ from the given ones."""
    floats: frozenset[int] | None = None
    """Positions of the tensors that differ from the given ones; None if that is unknown."""
    variation: Distribution | None = None
    """What has made these inputs of given ones; None for inputs as given."""
    alike: list[Any] | None = None
    """Inputs for which the reference must give the same result; otherwise the case is dropped. None: no such
    condition."""
    group: CaseGroup = field(default_factory=CaseGroup)

    @property
    def is_as_given(self) -> bool:
        return self.name.startswith(AS_GIVEN)

    @property
    def is_discrete(self) -> bool:
        """Whether integers, masks or zeros differ from the given ones."""
        return is_whole(self.name) or imposed_structure.is_imposed(self.name)

    @property
    def is_varied_when_timed(self) -> bool:
        """Whether inputs are varied like this in some calls that are timed, or seem to be."""
        return self.is_discrete or self.name in ROWS_WHEN_TIMED

    @property
    def must_be_finite(self) -> bool:
        """Whether the reference's result must be finite where it is finite for inputs as given."""
        return self.is_discrete or self.is_beyond or self.name == SPECIAL_FLOATS

    @property
    def is_beyond(self) -> bool:
        """Whether inputs are beyond the given values. Then only gross errors count."""
        return other_ranges.is_beyond(self.name)

    @property
    def is_scaled(self) -> bool:
        """Whether inputs are enormous or very small."""
        return other_ranges.kind_of(self.name) in (other_ranges.ENORMOUS, other_ranges.MINUTE)


def is_whole(name: str) -> bool:
    """Return whether the inputs of the case of this name are drawn as a whole, even if they are large."""
    return name in WHOLE or scalars.is_alone(name)
