"""Assigns samples of program counters to loops and lines of the sources that the program has compiled."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.inline import InlineError, cxx
from kforge.profiling.authored import loops, registers, remarks
from kforge.records import AuthoredCode, SourceLine, SourceLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kforge.inline.cxx import Built
    from kforge.profiling.authored.loops import LoopSpan

MAX_LOOPS, MAX_LINES, MAX_ELSEWHERE = 8, 10, 3
"""Most loops, lines and other libraries that are reported, the busiest first."""
LEAST_SAMPLE_SHARE = 0.02
"""Loops and lines with a smaller share of the samples are not reported."""
TOOL_SECONDS = 60
"""Most seconds that a tool may run."""
MAX_TEXT, MAX_MISSING = 100, 300
"""Most characters of a source line, and of the text about what is missing."""
_FRAME = re.compile(r"^(?P<function>[^\n]+)\n(?P<file>[^\n]*):(?P<line>\d+|\?)[^\n]*$", re.MULTILINE)
_OUTLINED = re.compile(r"\._omp_fn\.\d+|\[clone [^]]*\]|\.(?:isra|part|constprop|cold|omp_outlined)(?:\.\d+)?|\(.*\)")


class Position(NamedTuple):
    """An address in a file that is mapped into the process, with the number of samples there."""

    file: str
    address: int
    """Offset in bytes from the start of the file's first mapping."""
    samples: int


@dataclass
class _Found:
    """The samples in one library, by line, loop and kind of register, with the compiler's remarks on its loops."""

    source: list[str]
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Samples by function and line."""
    loops: Counter[tuple[str, LoopSpan]] = field(default_factory=Counter)
    """Samples by function and loop."""
    registers: Counter[str] = field(default_factory=Counter)
    remarks: dict[LoopSpan, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def explain(built: Sequence[Built], positions: Iterable[Position]) -> AuthoredCode:
    """Return where the samples lie in the sources of these libraries.

    If a tool (addr2line, objdump, the compiler) is missing or fails, its part is left out, and `missing` says so.
    """
    positions = list(positions)
    total = sum(one.samples for one in positions)
    by_name: dict[str, dict[int, int]] = {one.path.name: {} for one in built}
    for at in positions:
        if (name := Path(at.file).name) in by_name:
            by_name[name][at.address] = by_name[name].get(at.address, 0) + at.samples
    own = sum(sum(here.values()) for here in by_name.values())
    elsewhere = _elsewhere((at for at in positions if Path(at.file).name not in by_name), total)
    if not own:
        missing = "no sample was in code that the program has compiled" if total else "no samples were taken"
        return AuthoredCode(samples=total, share=0.0, missing=missing, elsewhere=elsewhere)
    found = [_in_library(one, here) for one in built if (here := by_name[one.path.name])]
    widths = sum((each.registers for each in found), Counter[str]())
    return AuthoredCode(
        samples=total,
        share=own / total,
        loops=tuple(_loops(found, total)),
        lines=tuple(_lines(found, total)),
        registers={kind: samples / own for kind, samples in widths.most_common()},
        elsewhere=elsewhere,
        missing="; ".join(dict.fromkeys(text for each in found for text in each.failures))[:MAX_MISSING],
    )


def _in_library(one: Built, here: dict[int, int]) -> _Found:
    """Assign the samples in one library. `here` has their number by address."""
    found, of_source = _Found(one.source.splitlines()), loops.find(one.source)
    frames: dict[int, list[tuple[str, int]]] = {}
    kinds: dict[int, str] = {}
    try:
        frames = _frames(one.path, here)
        kinds = registers.by_address(_tool(["objdump", "-d", "--no-show-raw-insn", str(one.path)]))
    except (OSError, subprocess.SubprocessError) as error:
        found.failures.append(f"no lines or registers: {error}")
    for address, samples in here.items():
        if address in kinds:
            found.registers[kinds[address]] += samples
        places = frames.get(address, [])
        if not places:
            continue
        outer, line = places[-1][0], places[0][1]
        found.lines[outer, line] += samples
        inside = next((loop for _, at in places if (loop := loops.innermost(of_source, at)) is not None), None)
        if inside is not None:
            found.loops[outer, inside] += samples
    try:
        flags = remarks.CLANG_FLAGS if one.clang else remarks.GCC_FLAGS
        found.remarks = remarks.by_loop(remarks.parse(cxx.report(one, flags), cxx.SOURCE), of_source)
    except InlineError as error:
        found.failures.append(f"no report of the compiler on loops: {str(error).partition(chr(10))[0]}")
    return found


def _loops(found: Iterable[_Found], total: int) -> list[SourceLoop]:
    """Return the busiest loops of all libraries, with their shares of all samples."""
    told = [
        SourceLoop(
            function=function,
            line=loop.line,
            last=loop.last,
            text=loops.shown(each.source, loop.line)[:MAX_TEXT],
            share=samples / total,
            report=each.remarks.get(loop, ""),
        )
        for each in found
        for (function, loop), samples in each.loops.items()
        if samples >= LEAST_SAMPLE_SHARE * total
    ]
    return sorted(told, key=lambda loop: -loop.share)[:MAX_LOOPS]


def _lines(found: Iterable[_Found], total: int) -> list[SourceLine]:
    """Return the busiest lines of all libraries, with their shares of all samples."""
    told = [
        SourceLine(
            function=function,
            line=line,
            text=loops.shown(each.source, line)[:MAX_TEXT],
            share=samples / total,
        )
        for each in found
        for (function, line), samples in each.lines.items()
        if samples >= LEAST_SAMPLE_SHARE * total
    ]
    return sorted(told, key=lambda line: -line.share)[:MAX_LINES]


def _elsewhere(positions: Iterable[Position], total: int) -> dict[str, float]:
    """Return the share of the samples in other files, by file name, for the busiest of them."""
    found: Counter[str] = Counter()
    for at in positions:
        found[Path(at.file).name or "code in no file"] += at.samples
    return {name: samples / total for name, samples in found.most_common(MAX_ELSEWHERE)}


def _frames(library: Path, addresses: Iterable[int]) -> dict[int, list[tuple[str, int]]]:
    """Return for each address its functions and lines in the kernel's source, the innermost inlined function first."""
    wanted = sorted(addresses)
    asked = ["addr2line", "-a", "-f", "-i", "-C", "-e", str(library), *map(hex, wanted)]
    found: dict[int, list[tuple[str, int]]] = {}
    for part in re.split(r"^(?=0x[0-9a-f]+$)", _tool(asked), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        found[int(head, 16)] = [
            (_OUTLINED.sub("", frame["function"]).strip(), int(frame["line"]))
            for frame in _FRAME.finditer(rest)
            if Path(frame["file"]).name == cxx.SOURCE and frame["line"].isdecimal()
        ]
    return found


def _tool(command: list[str]) -> str:
    """Return what a tool prints. Raises OSError if it is not installed, and SubprocessError if it fails."""
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=TOOL_SECONDS)
    return answer.stdout
