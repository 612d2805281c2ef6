"""The format `kernelbench`: a file with `ModelNew` under the name of a KernelBench sample, and its results."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kforge.export.one_file import one_file

if TYPE_CHECKING:
    from kforge.export.solution import Solution

NO_LEVEL, NO_NUMBER = 0, 0
"""Level and number of a problem that is not from KernelBench, which counts both from 1."""


def files(solution: Solution) -> dict[str, str | bytes]:
    """Return the sample and `eval_results.json`, by relative path. Raises InputError if the program cannot do without
    kforge."""
    level, number = place_of(solution)
    return {
        f"runs/{solution.run}/level_{level}_problem_{number}_sample_0_kernel.py": one_file(solution),
        f"runs/{solution.run}/eval_results.json": json.dumps({str(number): [_result(solution)]}, indent=2) + "\n",
    }


def place_of(solution: Solution) -> tuple[int, int]:
    """Return the KernelBench level and number of a problem named like `23_Softmax` in a folder like `level1`."""
    number = re.match(r"(\d+)_", solution.problem.name)
    levels = (re.fullmatch(r"level_?(\d+)", folder) for folder in solution.place)
    level = next((found for found in levels if found is not None), None)
    return int(level[1]) if level else NO_LEVEL, int(number[1]) if number else NO_NUMBER


def _result(solution: Solution) -> dict[str, Any]:
    """Return an entry of `eval_results.json`. Times are in milliseconds, as in KernelBench; -1 means not timed."""
    timing, receipt = solution.verdict.timing, solution.evaluation.receipt
    result: dict[str, Any] = {
        "sample_id": 0,
        "compiled": True,
        "correctness": True,
        "metadata": {
            "hardware": receipt.device,
            "device": solution.platform.manifest.device,
            "judged_by": solution.made_by,
            "cases": solution.verdict.cases,
            "max_error": solution.verdict.max_error,
        },
        "runtime": -1.0,
        "runtime_stats": {},
    }
    if timing is None:
        return result
    measured = [each for each in timing.comparisons if each.doubt is None]
    speedups = {f"speedup_over_{each.baseline}": each.speedup.median for each in measured}
    if len(measured) < len(timing.comparisons):
        result["metadata"]["speedup_not_measured"] = timing.comparisons[0].doubt
    seconds = timing.seconds
    stats = {"median": seconds.median, "low": seconds.low, "high": seconds.high}
    shown = {name: value * 1e3 for name, value in stats.items()}
    return result | {"runtime": seconds.median * 1e3, "runtime_stats": {**shown, "blocks": timing.pairs, **speedups}}
