"""What a report shows where nothing was measured, nothing is correct, or a run had no attempt."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET

import pytest

from kforge.metrics import AttemptResult, ProblemResult, StateChange
from kforge.records import Comparison, Interval, Peaks, Roofline
from kforge.report.charts.bars import distribution
from kforge.report.charts.flow import state_flow
from kforge.report.figures import attempts_chart, figures_of
from kforge.report.page import render_page
from kforge.report.summary import families, tiles
from kforge.report.texts import markdown, table
from kforge.report.views import AttemptRow, AttemptStory, ProblemRow, ReportView, SourceView, Story

BUSY = "other processes used 60 % of the machine during timing"


def compared(baseline: str = "eager", median: float = 2.0, *, doubt: str | None = None) -> Comparison:
    speedup = Interval(median=median, low=median * 0.99, high=median * 1.01)
    return Comparison(baseline=baseline, identity="torch", seconds=1e-3, speedup=speedup, doubt=doubt)


def solved(*comparisons: Comparison, **more: object) -> ProblemResult:
    steps = (AttemptResult(state="correct", is_first=True, elapsed=1.0),)
    facts = {"name": "a", "family": "f", "state": "correct", "comparisons": comparisons, "steps": steps}
    return ProblemResult.model_validate(facts | more)


def failed(state: str = "mismatch", **more: object) -> ProblemResult:
    steps = (AttemptResult(state="mismatch", is_first=True, elapsed=1.0),)
    return ProblemResult.model_validate({"name": "a", "family": "f", "state": state, "steps": steps} | more)


def report(*results: ProblemResult, baselines: tuple[str, ...] = ("eager",)) -> ReportView:
    source = SourceView("suite", "s", "s", "null", "m", "2026-11-19T00:00:00+00:00", "finished", "/s")
    rows = tuple(ProblemRow(f"p{i}", 0, "null", "m", result) for i, result in enumerate(results))
    return ReportView("r", (source,), rows, baselines)


def told(view: ReportView) -> dict[str, tuple[str, str]]:
    """The value and the note of each tile, by label."""
    return {tile.label: (tile.value, tile.note) for tile in tiles(view)}


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter() if element.tag.endswith("text")]


def test_unmeasured_programs_are_counted_apart_from_cannot_tell() -> None:
    """Cause: *cannot tell* counted measured programs and disturbed ones alike."""
    unsure = Comparison(
        baseline="eager", identity="torch", seconds=1e-3, speedup=Interval(median=1.1, low=0.9, high=1.3)
    )
    view = report(solved(compared()), solved(compared(doubt=BUSY)), solved(unsure), solved(), failed(family="g"))
    assert told(view)["faster than eager"] == ("1 of 3", "proven; 0 slower, 1 cannot tell; 2 of 5 not measured")
    assert told(view)["mean over eager"][1].endswith("geometric, of 3 without 2 not measured")
    head, *lines = families(view)
    columns = {name: head.index(name) for name in ("cannot tell", "not measured")}
    assert [[line[at] for at in columns.values()] for line in lines] == [["1", "2"], ["0", "0"], ["1", "2"]]
    assert "not measured" in markdown(view)
    found = [row["eager_finding"] for row in csv.DictReader(io.StringIO(table(view)))]
    assert found == ["faster", "not measured", "cannot tell", "", ""]


def test_no_figure_and_no_share_is_shown_where_nothing_was_measured() -> None:
    """Cause: fast_p drew a line at 0 %, and the tile said that 0 of 2 programs are faster."""
    view = report(solved(compared(doubt=BUSY)), failed())
    assert told(view)["faster than eager"] == ("not measured", "1 correct program not measured")
    found = figures_of(view)
    assert {"fast_p", "speedups_eager", "roofline"}.isdisjoint(figure.name for figure in found.drawn)
    reason = "Left out, because no correct program was measured over eager: fast_p, Speedups over eager."
    assert reason in found.left_out
    assert reason in render_page(view, {}, ())


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([failed()], "no finished problem has a correct program"),
        ([failed("unfinished")], "no problem is finished"),
    ],
)
def test_the_reason_says_why_no_program_was_measured(results: list[ProblemResult], reason: str) -> None:
    found = figures_of(report(*results))
    assert [figure.name for figure in found.drawn] == (["states"] if results[0].is_done else [])
    assert any(
        sentence.startswith(f"Left out, because {reason}: fast_p, Speedups over eager") for sentence in found.left_out
    )


def test_a_curve_is_drawn_only_for_baselines_with_a_measurement() -> None:
    view = report(solved(compared(), compared("compile", doubt=BUSY)), baselines=("eager", "compile"))
    found = {figure.name: figure for figure in figures_of(view).drawn}
    written = texts(found["fast_p"].svg)
    assert any(text.startswith("eager ") for text in written)
    assert not any(text.startswith("torch.compile ") for text in written)
    assert "over no p but 0: 1 over torch.compile, 1 over the faster of both." in found["fast_p"].caption
    assert "speedups_compile" not in found


def test_the_distribution_has_bars_for_failures_and_for_unmeasured_programs() -> None:
    """Cause: the median of a disturbed measurement stood in the bar of its speedup."""
    view = report(solved(compared()), solved(compared(median=9.0, doubt=BUSY)), solved(), failed())
    figure = next(figure for figure in figures_of(view).drawn if figure.name == "speedups_eager")
    assert "<title>1 none</title>" in figure.svg
    assert "<title>2 not measured</title>" in figure.svg
    assert figure.svg == distribution([(2.0, "faster")], 1, 2, "eager")


def test_the_roofline_tile_is_the_mean_of_correct_programs() -> None:
    """Cause: failures, which have no time, counted as 0 %, and a tile said 0 % where no program was profiled."""
    peaks = Peaks(device="d", bytes_per_second=1e10, flops_per_second=1e11)
    roof = Roofline(peaks=peaks, memory_seconds=1e-3, compute_seconds=0.0)
    half = solved(compared(), program_seconds=2e-3, roofline=roof)
    assert told(report(half, failed(roofline=roof)))["of the roofline"] == ("50%", "mean of 1 correct program")
    assert told(report(half, solved(compared())))["of the roofline"] == ("50%", "mean of 1 correct program; 1 unknown")
    assert "of the roofline" not in told(report(failed(roofline=roof)))


def test_a_run_without_attempts_ends_as_no_attempt() -> None:
    """Cause: the state before the first attempt was named as an end: `1 ended as start`."""
    changes = [
        StateChange(index=0, before="start", after="ended", problems=1),
        StateChange(index=0, before="start", after="correct", problems=2),
        StateChange(index=1, before="correct", after="ended", problems=2),
    ]
    written = texts(state_flow(changes))
    assert "1 no attempt" in written
    assert not any("start" in text for text in written)
    assert "3 problems" in written


def test_no_flow_is_drawn_where_no_run_had_an_attempt() -> None:
    found = figures_of(report(failed("no_attempt", steps=())))
    assert found.drawn == ()
    assert any("no finished problem has an attempt: States in each iteration" in each for each in found.left_out)


def test_no_chart_of_attempts_is_drawn_where_none_was_timed() -> None:
    """Cause: a run of two failures had a chart without a mark."""

    def attempt(index: int, *comparisons: Comparison) -> AttemptStory:
        return AttemptStory(AttemptRow(index, "functional", "correct", "said", comparisons=comparisons))

    row = report(failed()).problems[0]
    failures, timed = (attempt(0), attempt(1)), (attempt(0), attempt(1, compared()))
    assert attempts_chart(Story(row, "", (), failures)) is None
    assert attempts_chart(Story(row, "", (), timed[1:])) is None, "one attempt has nothing beside it"
    assert attempts_chart(Story(row, "", (), timed)) is not None
