"""Writes where the time goes inside authored kernels as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.wording import amount, cut, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kforge.records import AuthoredCode, SourceLoop

MAX_LOOPS, MAX_LINES = 6, 6
"""Most loops that are shown, and most lines besides loops of one line. A worker may report any number."""
LEAST_REGISTERS = 0.02
"""Kinds of registers with a smaller share are not shown."""
MEANINGS = {
    "libm.": "calls of <cmath>",
    "libgomp": "threads that wait for others",
    "libomp": "threads that wait for others",
    "libpython": "Python",
}
"""What samples in a library mean, by how its file's name begins."""
COUNTED_FROM = "Line numbers count from the first line of the string that is compiled."


def lines(code: AuthoredCode) -> list[str]:
    """Return the section of a profile's page."""
    title = "Inside the program's kernels"
    if code.samples and code.share:
        title += f" ({code.samples} samples of running threads, {percent(code.share)} of them there)"
    found = ["", title]
    for loop in code.loops[:MAX_LOOPS]:
        found.append(_row(loop.share, f"loop {_span(loop)}: {loop.text}"))
        if loop.report:
            found.append(f"{'':>9}{cut(loop.report)}")
    alone = {loop.line for loop in code.loops if loop.line == loop.last}
    rest = [line for line in code.lines if line.line not in alone][:MAX_LINES]
    found += [_row(line.share, f"line {line.line} ({line.function}): {line.text}") for line in rest]
    found += [f"  {name:<22}{cut(text)}" for name, text in _facts(code)]
    return [*found, COUNTED_FROM] if code.loops or rest else found


def _span(loop: SourceLoop) -> str:
    lines = f"line {loop.line}" if loop.line == loop.last else f"lines {loop.line}-{loop.last}"
    return f"in {loop.function}, {lines}"


def _row(share: float, text: str) -> str:
    return f"{share:>7.1%}  {cut(text)}"


def _facts(code: AuthoredCode) -> Iterator[tuple[str, str]]:
    kinds = [f"{kind} {percent(share)}" for kind, share in code.registers.items() if share >= LEAST_REGISTERS]
    if kinds:
        yield "instructions sampled", ", ".join(kinds)
    if code.elsewhere:
        yield "outside kernels", ", ".join(_library(name, share) for name, share in code.elsewhere.items())
    if code.counters:
        yield "counted in a call", ", ".join(_counts(code.counters))
    elif code.uncounted:
        yield "hardware counters", f"not available on this machine: {code.uncounted}"
    if code.missing:
        yield "not available", code.missing


def _library(name: str, share: float) -> str:
    """Return the text about samples in a library, with what it means where that is known."""
    meaning = next((f" ({words})" for start, words in MEANINGS.items() if name.startswith(start)), "")
    return f"{name} {percent(share)}{meaning}"


def _counts(counters: Mapping[str, float]) -> Iterator[str]:
    """Yield the figures that the processor's events give."""
    cycles, instructions = counters.get("cycles"), counters.get("instructions")
    if cycles and instructions:
        yield f"{instructions / cycles:.2f} instructions a cycle"
    for name, count in counters.items():
        if name != "cycles":
            yield f"{amount(count, '').strip()} {name}"
