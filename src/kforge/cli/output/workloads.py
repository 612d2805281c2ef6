"""The results of problems with several workloads, and the notes of a suite's tasks, for the screen and for `--json`."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from kforge.cli.output import words
from kforge.metrics.workloads import WeightedResult, weigh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.metrics.result import ProblemResult
    from kforge.metrics.workloads import WorkloadGain
    from kforge.problems import Task


def gains(tasks: Sequence[Task], results: Sequence[ProblemResult], baselines: Sequence[str]) -> list[WorkloadGain]:
    """Return the weighted results of the problems with several workloads. Tasks and results belong together by name."""
    by_name = {result.name: result for result in results}
    parts = [
        WeightedResult(task.group, task.weight, by_name[task.name])
        for task in tasks
        if task.group and task.name in by_name
    ]
    return weigh(parts, baselines)


def lines(found: Sequence[WorkloadGain], baselines: Sequence[str]) -> Iterator[str]:
    """Yield one line for each problem with several workloads, and one for all of them."""
    for gain in found:
        yield f"{gain.problem}: {gain.correct} of {gain.workloads} workloads correct{_figures(gain, baselines)}"
    if len(found) > 1:
        for name in baselines:
            means = [gain.geometric_mean[name] for gain in found if name in gain.geometric_mean]
            if means:
                mean = math.exp(math.fsum(map(math.log, means)) / len(means))
                yield f"geometric mean of {len(means)} problems, workloads weighted: {mean:.2f}x over {_called(name)}"


def notes(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield each note on tasks once, with the number of tasks that have it."""
    for note, count in Counter(note for task in tasks for note in task.notes).items():
        yield f"note on {count} of {len(tasks)}: {note}"


def about(task: Task) -> dict[str, Any]:
    """Return the fields that a task adds to the document of its result. Empty fields are left out."""
    weight = {"weight": task.weight} if task.group else {}
    said = {"workload": task.workload, "group": task.group, "notes": list(task.notes)}
    return {name: value for name, value in said.items() if value} | weight


def _figures(gain: WorkloadGain, baselines: Sequence[str]) -> str:
    said = ""
    for name in baselines:
        if name in gain.geometric_mean:
            served = f", {gain.served[name]:.2f}x for all calls served" if name in gain.served else ""
            said += f"; over {_called(name)} {gain.geometric_mean[name]:.2f}x{served}"
        else:
            said += f"; over {_called(name)} not measured"
    return said


def _called(baseline: str) -> str:
    return words.BASELINES.get(baseline, baseline)
