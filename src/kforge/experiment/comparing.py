"""The outcome of an experiment: numbers of each arm, and paired tests of each arm against the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.metrics import Cost, Estimate, Metrics, PairedTest, adjusted, cost, mean_speedup, paired_test, summarize
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.experiment.definition import Experiment
    from kforge.metrics import ProblemResult


class ArmReport(Record):
    """The numbers of one arm. A problem that was repeated counts once for each time."""

    name: str
    options: dict[str, Any]
    """The arm's own options."""
    metrics: Metrics
    mean: Estimate | None
    """Geometric mean of speedups, failures as 1.0; None if nothing was measured."""
    cost: Cost


class ArmComparison(Record):
    """The tests of one arm against the base."""

    base: str
    other: str
    tests: tuple[PairedTest, ...]


class Comparisons(Record):
    """The outcome of an experiment."""

    arms: tuple[ArmReport, ...]
    comparisons: tuple[ArmComparison, ...]

    @property
    def tests(self) -> int:
        """Number of tests for which p-values are adjusted together."""
        return sum(bool(test.pairs) for each in self.comparisons for test in each.tests)


def compare(experiment: Experiment, results: Mapping[str, Sequence[ProblemResult]]) -> Comparisons:
    """Return the outcome. `results` are those of each arm, by its name; an arm that did not begin is left out."""
    baselines, measures = experiment.baselines, experiment.file.measures
    arms = [arm for arm in experiment.arms if arm.name in results]
    reports = tuple(
        ArmReport(
            name=arm.name,
            options=dict(arm.chosen),
            metrics=summarize(results[arm.name], baselines),
            mean=mean_speedup(results[arm.name], baselines),
            cost=cost(results[arm.name]),
        )
        for arm in arms
    )
    base, others = arms[:1], arms[1:]
    tests = adjusted(
        [
            paired_test(results[base[0].name], results[arm.name], measure, baselines)
            for arm in others
            for measure in measures
        ]
    )
    comparisons = tuple(
        ArmComparison(
            base=base[0].name,
            other=arm.name,
            tests=tuple(tests[number * len(measures) : (number + 1) * len(measures)]),
        )
        for number, arm in enumerate(others)
    )
    return Comparisons(arms=reports, comparisons=comparisons)
