"""The numbers at the top of a report, and its table of families, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.metrics import by_family, cost, kept_speedup, mean_speedup, roofline_shares, summarize
from kforge.phrases import BASELINES, NOT_MEASURED, NOTHING, clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.metrics import Estimate, Gain, Metrics
    from kforge.report.views import ReportView


@dataclass(frozen=True)
class Tile:
    """One number with its name, and a note that explains it."""

    label: str
    value: str
    note: str = ""


def tiles(view: ReportView) -> Iterator[Tile]:
    """Yield the numbers at the top of a report, the most important first."""
    found = summarize(view.results, view.baselines)
    left = found.problems - found.done
    yield Tile("problems", str(found.problems), f"{left} not finished" if left else "all finished")
    correct = sum(result.is_correct for result in view.results)
    yield Tile("correct", f"{found.correct:.0%}" if found.done else NOTHING, f"{correct} of {found.done} finished")
    for baseline, gain in found.gains.items():
        yield _gain(f"faster than {BASELINES[baseline]}", gain, found.done)
    for baseline in view.baselines:
        yield from _mean(f"mean over {BASELINES[baseline]}", view, (baseline,))
    if len(view.baselines) > 1:
        yield from _mean("mean over the faster of both", view, view.baselines)
    # a failure has no distance from the roofline, so only correct programs count here
    roof = roofline_shares([result for result in view.results if result.is_correct])
    if roof.mean is not None:
        unknown = f"; {roof.unknown} unknown" if roof.unknown else ""
        yield Tile("of the roofline", f"{roof.mean.value:.0%}", f"mean of {_programs(roof.problems)}{unknown}")
    yield from _costs(view)


def _mean(label: str, view: ReportView, baselines: tuple[str, ...]) -> Iterator[Tile]:
    """Yield the geometric mean with the number of problems in it. Problems whose speedup is unknown are left out."""
    mean = mean_speedup(view.results, baselines)
    if mean is not None:
        kept = [kept_speedup(result, baselines) for result in view.results if result.is_done]
        unknown = kept.count(None)
        left_out = f" without {unknown} not measured" if unknown else ""
        yield Tile(label, _times(mean.value), f"{_band(mean)}; geometric, of {len(kept) - unknown}{left_out}")


def _gain(label: str, gain: Gain, done: int) -> Tile:
    """Return the number of programs that are proven faster, of the problems that were measured."""
    if gain.share is None:
        return Tile(label, NOT_MEASURED, f"{_programs(gain.unknown)} not measured")
    unknown = f"; {gain.unknown} of {done} not measured" if gain.unknown else ""
    found = f"proven; {gain.slower} slower, {gain.cannot_tell} cannot tell{unknown}"
    return Tile(label, f"{gain.faster} of {gain.measured}", found)


def _programs(count: int) -> str:
    return f"{count} correct program{'s' * (count != 1)}"


def _costs(view: ReportView) -> Iterator[Tile]:
    spent = cost(view.results)
    each = spent.seconds_per_solved
    yield Tile("wall time", clock(spent.seconds), f"{clock(each)} a solved problem" if each is not None else "")
    if spent.tokens:
        tokens = spent.tokens_per_solved
        yield Tile("tokens", f"{spent.tokens:,}", f"{tokens:,.0f} a solved problem" if tokens is not None else "")
    if spent.usd:
        unknown = f"; {spent.unpriced} calls of unknown price" if spent.unpriced else ""
        dollars = spent.usd_per_solved
        yield Tile("price", f"${spent.usd:.2f}", (f"${dollars:.3f} a solved problem" if dollars else "") + unknown)


def families(view: ReportView) -> list[list[str]]:
    """Return the table of families: a heading, a line for each, and one for all. Empty if there is only one family."""
    found = by_family(view.results, view.baselines)
    if len(found) < 2:
        return []
    compared = [f"faster than {BASELINES[name]}" for name in view.baselines]
    means = [f"mean over {BASELINES[name]}" for name in view.baselines]
    lines = [[name or "(none)", *_cells(metrics, view)] for name, metrics in found.items()]
    everything = ["all", *_cells(summarize(view.results, view.baselines), view)]
    return [["family", "problems", "correct", *compared, "cannot tell", NOT_MEASURED, *means], *lines, everything]


def _cells(metrics: Metrics, view: ReportView) -> list[str]:
    gains = [metrics.gains.get(name) for name in view.baselines]
    return [
        str(metrics.problems),
        f"{metrics.correct:.0%}" if metrics.done else NOTHING,
        *(str(gain.faster) if gain is not None else NOTHING for gain in gains),
        *((str(gains[0].cannot_tell), str(gains[0].unknown)) if gains[0] is not None else (NOTHING, NOTHING)),
        *(
            f"{gain.geometric_mean:.2f}x" if gain is not None and gain.geometric_mean is not None else NOTHING
            for gain in gains
        ),
    ]


def _times(value: float) -> str:
    return f"{value:.2f}x"


def _band(mean: Estimate) -> str:
    return f"95 %: {mean.low:.2f} to {mean.high:.2f}"
