"""The figures of a report: which charts it has, from which numbers, with which captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kforge.metrics import ENDED, START, cost_curve, fast_curves, state_changes
from kforge.phrases import BASELINES, clock, finding
from kforge.report.charts import bars, curves, dots, flow
from kforge.report.charts.palette import paper_css

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

    from kforge.report.views import AttemptStory, ReportView, Story

NOTHING_CORRECT = "no finished problem has a correct program"


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


@dataclass(frozen=True)
class _LeftOut:
    """A figure that would show nothing, and why."""

    title: str
    reason: str


@dataclass(frozen=True)
class Figures:
    """The figures of a report that have something to show."""

    drawn: tuple[Figure, ...]
    left_out: tuple[str, ...]
    """A sentence for each reason why figures are left out, with their titles."""


def figures_of(view: ReportView) -> Figures:
    """Return the figures of a report."""
    found = [_fast_p(view), *(_distribution(view, each) for each in view.baselines), _states(view)]
    found += [*_costs(view), _roofline(view)]
    drawn = tuple(each for each in found if isinstance(each, Figure))
    reasons: dict[str, list[str]] = {}
    for each in found:
        if isinstance(each, _LeftOut):
            reasons.setdefault(each.reason, []).append(each.title)
    return Figures(drawn, tuple(f"Left out, because {why}: {', '.join(them)}." for why, them in reasons.items()))


def _without_speedup(view: ReportView, baselines: Sequence[str]) -> str:
    """Return why a report that has no measured speedup over these baselines has none."""
    done = [result for result in view.results if result.is_done]
    if not done:
        return "no problem is finished"
    if not any(result.is_correct for result in done):
        return NOTHING_CORRECT
    return f"no correct program was measured over {' or '.join(BASELINES[each] for each in baselines)}"


def _fast_p(view: ReportView) -> Figure | _LeftOut:
    found = fast_curves(view.results, view.baselines)
    if not any(curve.measured for curve in found):
        return _LeftOut("fast_p", _without_speedup(view, view.baselines))
    unknown = [f"{each.not_measured} over {curves.name_of(each)}" for each in found if each.not_measured]
    counted = f" Not measured, and therefore over no p but 0: {', '.join(unknown)}." if unknown else ""
    return Figure(
        "fast_p", "fast_p",
        f"Share of the {found[0].problems} finished problems whose median speedup is strictly over p. Problems without "
        f"a correct program count.{counted} The bands are 95 % bootstrap intervals over problems; the dot at p = 0 is "
        "the share of correct programs.",
        curves.fast_p(found),
    )  # fmt: skip


def _distribution(view: ReportView, baseline: str) -> Figure | _LeftOut:
    name = BASELINES[baseline]
    title = f"Speedups over {name}"
    measured, none, not_measured = list[tuple[float, str]](), 0, 0
    for result in view.results:
        compared = result.against(baseline)
        if compared is not None and compared.doubt is None:
            measured.append((compared.speedup.median, compared.finding))
        elif result.is_done:
            none += not result.is_correct
            not_measured += result.is_correct
    if not measured:
        return _LeftOut(title, _without_speedup(view, (baseline,)))
    return Figure(
        f"speedups_{baseline}", title,
        "Median speedups of the best programs, by what their 95 % intervals show. “None” are finished problems "
        "without a correct program; “not measured” are those with one whose speedup is unknown.",
        bars.distribution(measured, none, not_measured, name),
    )  # fmt: skip


def _states(view: ReportView) -> Figure | _LeftOut:
    title, changes = "States in each iteration", state_changes(view.results)
    if all(change.before == START and change.after == ENDED for change in changes):
        return _LeftOut(title, "no finished problem has an attempt")
    return Figure(
        "states", title,
        "Each column is one iteration, and each ribbon the problems that went from one state to another.",
        flow.state_flow(changes),
    )  # fmt: skip


def _costs(view: ReportView) -> Iterator[Figure | _LeftOut]:
    """Yield the cost curves. A cost that no problem had, such as that of a model that is free, has none."""
    wanted: tuple[tuple[Literal["seconds", "tokens", "usd"], str, str], ...] = (
        ("seconds", "wall time of a problem", "time"),
        ("tokens", "tokens of a problem", "tokens"),
        ("usd", "US dollars of a problem", "dollars"),
    )
    if not any(result.is_correct for result in view.results):
        yield _LeftOut("Solved by cost", _without_speedup(view, view.baselines))
        return
    for currency, label, name in wanted:
        points = cost_curve(view.results, currency)
        if points and points[-1].spent > 0:
            yield Figure(
                f"cost_{name}", f"Solved by {name} spent",
                "Share of the finished problems that have a correct program within a limit per problem. The cost of a "
                "problem counts up to its first correct attempt.",
                curves.solved(points, label, {"seconds": clock, "tokens": _thousands, "usd": _dollars}[currency]),
            )  # fmt: skip


def _roofline(view: ReportView) -> Figure | _LeftOut:
    title = "Distance from the roofline"
    points = [
        dots.RoofPoint(
            row.name, row.result.roofline.floor_seconds, row.result.program_seconds, row.finding,
            row.result.roofline.bound == "memory",
        )
        for row in view.problems
        if row.result.roofline is not None and row.result.program_seconds and row.result.roofline.floor_seconds
    ]  # fmt: skip
    if not points:
        correct = any(result.is_correct for result in view.results)
        why = "no correct program was timed and profiled" if correct else _without_speedup(view, view.baselines)
        return _LeftOut(title, why)
    return Figure(
        "roofline", title,
        "Time of each best program against the least time that the measured peaks of its device allow. The lowest "
        "line is the roofline; dots are bound by memory, squares by arithmetic.",
        dots.roofline(points),
    )  # fmt: skip


def _thousands(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.0f}"


def _dollars(value: float) -> str:
    return f"${value:.3g}"


def attempts_chart(story: Story) -> Markup | None:
    """Return the speedups of a story's attempts. None if there is only one attempt, or if none has a speedup."""
    marks = [_mark(each, best=story.best) for each in story.attempts]
    return dots.attempts(marks) if len(marks) > 1 and any(mark.speedup is not None for mark in marks) else None


def _mark(attempt: AttemptStory, best: int | None) -> dots.Mark:
    row = attempt.row
    said = f"attempt {row.index}: {row.said}"
    if not row.comparisons:
        return dots.Mark(row.index, row.state, None, row.index == best, said)
    eager = row.comparisons[0]
    speedup = (eager.speedup.low, eager.speedup.median, eager.speedup.high)
    return dots.Mark(row.index, finding(eager), speedup, row.index == best, said)
