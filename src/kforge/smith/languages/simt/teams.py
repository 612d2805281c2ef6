"""Divides the work of a reduction among threads. A *team* of threads shares one place (such as a row), and a thread
group has several teams.

If rows are reduced, the threads of a team are neighbours, because the elements of a row are neighbours in memory. If
columns are reduced, neighbouring threads have neighbouring columns, and the threads of a team lie apart. A team of one
thread exchanges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import block_of
from kforge.smith.languages.simt.dialect import THREAD_INDEX
from kforge.smith.languages.simt.functions import combined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.code import Code
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan

LANES = 32
"""Fewest neighbouring columns that a thread group reads at once: one cache line."""
FILLED = 264
"""Number of thread groups that fill a device: two for each of 132 multiprocessors."""
ENOUGH_THREADS = 1 << 16
"""Number of threads below which a device is not busy. With fewer, more threads share each place."""
WORTH_SPLITTING = 32
"""Fewest elements per thread for which several thread groups share one place."""
PIECE = 32
"""Most elements that a thread adds up before it adds their sum to its total. Pieces keep the rounding error small: the
mean of equal numbers is off by 8 units in the last place at most, by 24 with 64, and after a subtraction nothing but
that error is left."""


@dataclass(frozen=True)
class Team:
    """How the threads of a group share places. `group` is the number of threads of a group; `rows` says whether rows
    are reduced, not columns."""

    group: int
    size: int
    """Number of threads of a team, a power of two."""
    rows: bool
    parts: int = 1
    """Number of thread groups that share one place."""

    @property
    def places(self) -> int:
        """Number of places that one thread group processes."""
        return self.group // self.size

    @property
    def place(self) -> str:
        """Expression for the index, within the thread group, of the place that a thread works on."""
        if self.size == 1:
            return THREAD_INDEX
        if self.places == 1:
            return "0"
        return f"{THREAD_INDEX} / {self.size}" if self.rows else f"{THREAD_INDEX} % {self.places}"

    @property
    def member(self) -> str:
        """Expression for the index of a thread within its team."""
        if self.size == 1:
            return "0"
        if self.places == 1:
            return THREAD_INDEX
        return f"{THREAD_INDEX} % {self.size}" if self.rows else f"{THREAD_INDEX} / {self.places}"


def team_for(places: int, length: int, *, rows: bool, plan: SimtPlan, dialect: Dialect) -> Team:
    """Return how to divide `places` places of `length` elements among threads."""
    group = min(plan.group, dialect.most_threads)
    wanted = max(1, block_of(-(-length // plan.each)))
    if rows:
        if length > group * 64 and places < 8 * FILLED:  # long rows: more threads each
            group = min(4 * group, dialect.most_threads)
        size = min(group, wanted)
    else:
        lanes = min(group, LANES)
        size = 1
        while size * 2 <= group // lanes and size < wanted and places * size < ENOUGH_THREADS:
            size *= 2
    if size == 1:
        while group > LANES and places < group * FILLED:
            group //= 2
    groups = -(-places // (group // size))
    parts = 1
    if groups < FILLED:
        parts = min(plan.parts, -(-length // (size * WORTH_SPLITTING)), -(-2 * FILLED // groups))
    return Team(group, size, rows, max(1, parts))


def reduced(code: Code, team: Team, values: Sequence[tuple[str, str]]) -> None:
    """Write the statements that combine variables over all threads of a team; every thread then has the results.

    Each item of `values` is a pair: the reduction's function, and the name of the variable.
    """
    if team.size == 1:
        return
    width = code.dialect.subgroup
    if width and team.rows:
        _by_subgroups(code, team, values, width)
    else:
        _by_shared_memory(code, team, values)


def _by_subgroups(code: Code, team: Team, values: Sequence[tuple[str, str]], width: int) -> None:
    inner = min(width, team.size)
    for function, name in values:
        distance = inner // 2
        while distance:
            code.assign(name, combined(code, function, name, code.dialect.swapped(name, distance)))
            distance //= 2
    if team.size <= width:
        return
    each = team.size // width
    for function, name in values:
        memory = code.shared("float32", f"of_{function}", team.group // width)
        with code.when(f"{THREAD_INDEX} % {width} == 0"):
            code.assign(f"{memory}[{THREAD_INDEX} / {width}]", name)
        code.barrier()
        first = "0" if team.places == 1 else f"{THREAD_INDEX} / {team.size} * {each}"
        code.assign(name, f"{memory}[{first}]")
        index = code.name("other")
        with code.loop(index, each, "1", unroll=True):
            code.assign(name, combined(code, function, name, f"{memory}[{first} + {index}]"))
        code.barrier()


def _by_shared_memory(code: Code, team: Team, values: Sequence[tuple[str, str]]) -> None:
    """Write a tree reduction in shared memory: in each step, half of the threads add the values of the other half."""
    apart = 1 if team.rows else team.places
    for function, name in values:
        memory = code.shared("float32", f"of_{function}", team.group)
        own = f"{memory}[{THREAD_INDEX}]"
        code.assign(own, name)
        code.barrier()
        reach = code.var(code.name("reach"), "int32", str(team.size // 2))
        with code.loop(code.name("level"), team.size.bit_length() - 1):
            with code.when(f"member < {reach}"):
                other = f"{memory}[{THREAD_INDEX} + {reach}{'' if apart == 1 else f' * {apart}'}]"
                code.assign(own, combined(code, function, own, other))
            code.barrier()
            code.assign(reach, f"{reach} / 2")
        code.assign(name, f"{memory}[{THREAD_INDEX} - member{'' if apart == 1 else f' * {apart}'}]")
        code.barrier()


def first_position(code: Code, team: Team, name: str, holds: str, length: int) -> None:
    """Write the statements that give every thread of a team the smallest value of the variable `name` among the threads
    for which the condition `holds` is true."""
    if team.size == 1:
        return
    apart = 1 if team.rows else team.places
    memory = code.shared("int32", "of_positions", team.group)
    code.assign(f"{memory}[{THREAD_INDEX}]", code.dialect.select(holds, name, str(length)))
    code.barrier()
    code.assign(name, str(length - 1))
    with code.loop("other", team.size):
        place = f"{THREAD_INDEX} + (other - member){'' if apart == 1 else f' * {apart}'}"
        code.let("found", "int32", f"{memory}[{place}]")
        code.assign(name, code.dialect.select(f"found < {name}", "found", name))
