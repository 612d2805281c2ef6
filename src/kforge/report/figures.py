"""The figures of a report: which charts it has, from which numbers, with which captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kforge.metrics import cost_curve, fast_curves, state_changes
from kforge.phrases import BASELINES, clock
from kforge.report.charts import bars, curves, dots, flow
from kforge.report.charts.palette import paper_css

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from kforge.report.views import AttemptStory, ReportView, Story


@dataclass(frozen=True)
class Figure:
    """One chart with its title and its caption."""

    name: str
    """Name of the file that holds it for papers, without its ending."""
    title: str
    caption: str
    svg: Markup

    def for_paper(self) -> str:
        """Return the drawing as a file of its own, with plain colours for light paper."""
        style = f"<style>{paper_css()}</style><rect width='100%' height='100%' fill='#ffffff'/>"
        head, end, rest = str(self.svg).partition(">")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{end}{style}{rest}\n'


def figures_of(view: ReportView) -> Iterator[Figure]:
    """Yield the figures of a report. One that would be empty is left out."""
    results = view.results
    done = [result for result in results if result.is_done]
    if done:
        yield Figure(
            "fast_p", "fast_p",
            f"Share of the {len(done)} finished problems whose median speedup is strictly over p. Problems without a "
            "correct program count, and a disturbed measurement is over no p but 0. The bands are 95 % bootstrap "
            "intervals over problems; the dot at p = 0 is the share of correct programs.",
            curves.fast_p(fast_curves(results, view.baselines)),
        )  # fmt: skip
    for baseline in view.baselines:
        yield from _distribution(view, baseline)
    changes = state_changes(results)
    if changes:
        yield Figure(
            "states", "States in each iteration",
            "Each column is one iteration, and each ribbon the problems that went from one state to another.",
            flow.state_flow(changes),
        )  # fmt: skip
    yield from _costs(view)
    points = [
        dots.RoofPoint(
            row.name, row.result.roofline.floor_seconds, row.result.program_seconds, row.finding,
            row.result.roofline.bound == "memory",
        )
        for row in view.problems
        if row.result.roofline is not None and row.result.program_seconds and row.result.roofline.floor_seconds
    ]  # fmt: skip
    if points:
        yield Figure(
            "roofline", "Distance from the roofline",
            "Time of each best program against the least time that the measured peaks of its device allow. The lowest "
            "line is the roofline; dots are bound by memory, squares by arithmetic.",
            dots.roofline(points),
        )  # fmt: skip


def _distribution(view: ReportView, baseline: str) -> Iterator[Figure]:
    found = list[tuple[float, str]]()
    for row in view.problems:
        compared = row.result.against(baseline)
        if compared is not None:
            finding = compared.finding if compared.doubt is None else "not measured"
            found.append((compared.speedup.median, finding))
    if found:
        others = sum(result.is_done for result in view.results) - len(found)
        name = BASELINES[baseline]
        yield Figure(
            f"speedups_{baseline}", f"Speedups over {name}",
            "Median speedups of the best programs, by what their 95 % intervals show. “None” are finished problems "
            "without a timed, correct program.",
            bars.distribution(found, max(others, 0), name),
        )  # fmt: skip


def _costs(view: ReportView) -> Iterator[Figure]:
    wanted: tuple[tuple[Literal["seconds", "tokens", "usd"], str, str], ...] = (
        ("seconds", "wall time of a problem", "time"),
        ("tokens", "tokens of a problem", "tokens"),
        ("usd", "US dollars of a problem", "dollars"),
    )
    for currency, label, name in wanted:
        points = cost_curve(view.results, currency)
        if points and points[-1].spent > 0:
            yield Figure(
                f"cost_{name}", f"Solved by {name} spent",
                "Share of the finished problems that have a correct program within a limit per problem. The cost of a "
                "problem counts up to its first correct attempt.",
                curves.solved(points, label, {"seconds": clock, "tokens": _thousands, "usd": _dollars}[currency]),
            )  # fmt: skip


def _thousands(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.0f}"


def _dollars(value: float) -> str:
    return f"${value:.3g}"


def attempts_chart(story: Story) -> Markup:
    """Return the speedups of a story's attempts."""
    return dots.attempts([_mark(each, best=story.best) for each in story.attempts])


def _mark(attempt: AttemptStory, best: int | None) -> dots.Mark:
    row = attempt.row
    eager = row.comparisons[0] if row.comparisons else None
    speedup = (eager.speedup.low, eager.speedup.median, eager.speedup.high) if eager is not None else None
    finding = row.state
    if eager is not None:
        finding = eager.finding if eager.doubt is None else "not measured"
    return dots.Mark(row.index, finding, speedup, row.index == best, f"attempt {row.index}: {row.said}")
