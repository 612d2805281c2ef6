"""Reads a compiler's remarks on the vectorization of loops: GCC's `-fopt-info-vec` and clang's `-Rpass`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.profiling.authored import loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kforge.profiling.authored.loops import LoopSpan

GCC_FLAGS = ("-fopt-info-vec-optimized-missed",)
CLANG_FLAGS = tuple(f"-Rpass{kind}=loop-vectorize" for kind in ("", "-missed", "-analysis"))

_MESSAGE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: (?:optimized|missed|remark): +(?P<text>.*)$", re.MULTILINE
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_LANES = re.compile(r"vectorized loop \(vectorization width: (\d+)")
_LOST = "couldn't vectorize loop"
_REASON = re.compile(r"(?:not vectorized: |loop not vectorized: )(?P<reason>.+?)(?: \[-R.*)?$")
_CALL = re.compile(r"relevant stmt not supported: .*\b(?:__builtin_)?(?P<name>\w+) \(.*")
_UNCLEAR = "the compiler gives no clear reason"
_PLAIN = {
    r"multiple nested loops|two or more consecutive inner loops|outer-loop": "it contains other loops",
    r"control flow in loop|cannot be if-converted": "there is a branch in it",
    r"not profitable|not be worthwhile|not beneficial": (
        "the compiler expects no gain, or must keep a sum's order: `#pragma omp simd reduction`"
    ),
    r"number of iterations|latch block not empty": "its number of iterations is not known before it runs",
    r"no vectype for stmt|unsupported data-type": "its values are vectors already, or of a type that has no vectors",
    r"unsafe fp|reduction|value that could not be identified": (
        "it carries a value from one iteration to the next; a sum needs `#pragma omp simd reduction`"
    ),
    r"data ref|access pattern|dependence|alias": (
        "its memory accesses may depend on each other, or have no unit stride"
    ),
}
"""Patterns of the reasons that compilers give, and what these mean in plain words."""


@dataclass(frozen=True)
class Remark:
    """What the compiler did with a loop."""

    line: int
    vectorized: bool
    text: str


def parse(log: str, source: str) -> list[Remark]:
    """Return the remarks on loops in a compiler's output. `source` is the name of the source's file in it."""
    found: list[Remark] = []
    lost: int | None = None
    for message in _MESSAGE.finditer(log):
        here, line, text = message["file"].endswith(source), int(message["line"]), message["text"]
        if here and (width := _WIDTH.search(text)):
            found.append(Remark(line, vectorized=True, text=f"vectorized, {width[1]}-byte registers"))
        elif here and (lanes := _LANES.search(text)):
            found.append(Remark(line, vectorized=True, text=f"vectorized, {lanes[1]} elements at once"))
        elif here and text.startswith(_LOST):
            lost = line
            continue
        elif lost is not None:  # the reason follows, at the statement, which may be in a header
            found.append(Remark(lost, vectorized=False, text=f"not vectorized: {_plain(text)}"))
        elif here and (reason := _REASON.search(text)) and "-Rpass" in text:
            found.append(Remark(line, vectorized=False, text=f"not vectorized: {_plain(reason['reason'])}"))
        elif here and "cost-model indicates that vectorization is not beneficial" in text:
            found.append(Remark(line, vectorized=False, text=f"not vectorized: {_plain(text)}"))
        lost = None
    return found


def by_loop(found: Iterable[Remark], of_source: Sequence[LoopSpan]) -> dict[LoopSpan, str]:
    """Return the remark on each loop that has one. A remark that a loop was vectorized has priority: compilers also
    report parts of such a loop that were not, as its remainder or copies for short data."""
    told: dict[LoopSpan, Remark] = {}
    for remark in found:
        loop = loops.innermost(of_source, remark.line)
        if loop is not None and (loop not in told or (remark.vectorized and not told[loop].vectorized)):
            told[loop] = remark
    return {loop: remark.text for loop, remark in told.items()}


def _plain(text: str) -> str:
    """Return a compiler's reason in plain words."""
    if call := _CALL.search(text):
        return f"it calls {call['name']}, which has no vector form here"
    reason = re.sub(r"^not vectorized: ", "", text).partition(" [-R")[0].strip().rstrip(".")
    plain = next((words for pattern, words in _PLAIN.items() if re.search(pattern, reason)), None)
    if plain is not None:
        return plain
    return reason if reason and "_" not in reason else _UNCLEAR
