"""Facts that prompts give about a task: the device, PyTorch's own time, the tolerances, and the cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.problems.inputs import in_words
from kforge.profiling.wording import amount, cut, percent, time
from kforge.records import Candidate, Correct
from kforge.records.tolerances import ERROR_FACTOR, FLOORS, WEIGHT_CHANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, EvaluationPolicy, HotSpot, Problem, Workload

MOST_OPERATORS = 8
"""Most operators of eager mode that a prompt lists, the most expensive first. The others hardly ever matter."""
LEAST_SHARE = 0.01
"""Share of eager's time below which an operator is not listed."""


@dataclass(frozen=True)
class MeasuredFacts:
    """Measurements from before the first program: the device, and PyTorch itself on the problem."""

    device: str = ""
    """Facts about the device, a line each; empty where they are not known."""
    seconds: float = 0.0
    """Seconds of one call in eager mode; zero where it was not measured."""
    operators: tuple[HotSpot, ...] = ()
    """The operators that eager mode runs, the most expensive first."""


def original(problem: Problem, platform: str) -> Candidate:
    """Return the problem's own module as a program."""
    return Candidate(source=f"{problem.source.rstrip()}\n\n\nModelNew = Model\n", platform=platform)


def task_facts(
    problem: Problem, workload: Workload, measured: MeasuredFacts, attempts: Sequence[Attempt]
) -> dict[str, object]:
    """Return the facts of the templates' part `_task`."""
    return {
        "problem": problem,
        "workload": workload,
        "moved": amount(workload.bytes_moved, "B"),
        "arithmetic": amount(workload.flops, "FLOP") if workload.flops else "",
        "device": measured.device,
        "baselines": _baselines(measured, attempts),
        "operators": [
            f"{cut(each.name, 80)}: {percent(each.share)}"
            for each in measured.operators[:MOST_OPERATORS]
            if each.share >= LEAST_SHARE
        ],
    }


def rule_facts(policy: EvaluationPolicy, workload: Workload) -> dict[str, object]:
    """Return the rules of the evaluation, for the templates' part `_rules`."""
    dtypes = dict.fromkeys(spec.dtype for spec in workload.outputs)
    floors = FLOORS[policy.precision]
    return {
        "precision": policy.precision,
        "track": policy.track,
        "floors": [f"{floors[dtype]:g} for {dtype}" for dtype in dtypes if dtype in floors],
        "factor": f"{ERROR_FACTOR:g}",
        "has_indices": any(dtype.startswith("int") for dtype in dtypes),
        "weight_changes": WEIGHT_CHANGES,
        "cases": _cases(workload),
    }


def _cases(workload: Workload) -> list[tuple[str, str]]:
    """Return the kinds of cases that inputs of these dtypes can have, each with a line that explains it."""
    dtypes = {spec.dtype for spec in workload.inputs}
    has_integers = any(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes)
    has_floats = any("float" in dtype or "complex" in dtype for dtype in dtypes)
    floats = in_words.ALWAYS if has_floats else {"as_given": in_words.ALWAYS["as_given"]}
    return [*floats.items(), *(in_words.INTEGERS.items() if has_integers else ())]


def _baselines(measured: MeasuredFacts, attempts: Sequence[Attempt]) -> list[str]:
    """Return the time of a call in PyTorch itself, a line for each baseline.

    The times are those of the latest races. Without a race, the time is that of the profile of eager mode.
    """
    for attempt in reversed(attempts):
        verdict = attempt.verdict
        if isinstance(verdict, Correct) and verdict.comparisons:
            names = {"eager": "PyTorch eager", "compile": "torch.compile"}
            return [f"{names[each.baseline]}: {time(each.seconds)} a call" for each in verdict.comparisons]
    return [f"PyTorch eager: {time(measured.seconds)} a call"] if measured.seconds else []
