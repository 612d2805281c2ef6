"""Compares the recorded programs of the examples at an earlier commit with today's, head to head.

    python benchmarks/recordings.py fde517a7                     all examples that were recorded at both
    python benchmarks/recordings.py fde517a7 softmax_scale       one of them

A recording is the exchange of a run with a model: examples/NAME/exchange. Each of its programs is judged. Of each side
the best one, by the median speedup over eager, is timed against the other side's by the head-to-head that also decides
whether a rewrite replaces the best program of a run. A pair that is undecided is timed again, twice at most. Prints a
line for each program and each pair, and a JSON document with the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import platforms, problems
from kforge.agents.parsing import parse_program
from kforge.evaluation import Judge
from kforge.platforms import host
from kforge.records import Candidate, EvaluationPolicy, GenerationFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.records import Problem

ROOT = Path(__file__).resolve().parent.parent
TRIES = 3
"""How often a pair is timed while it is undecided."""


def main(before: str, names: list[str]) -> int:
    found = {name: compared(name, before) for name in names or recorded(before)}
    print(json.dumps({"machine": host.describe(), "before": before, "examples": found}))
    return 0


def recorded(commit: str) -> list[str]:
    """Return the names of the examples that have a recording now and had one at this commit."""
    now = {path.parent.name for path in (ROOT / "examples").glob("*/exchange")}
    return sorted(name for name in now if _git("ls-tree", commit, f"examples/{name}/exchange"))


def compared(name: str, before: str) -> dict[str, Any]:
    """Judge all recorded programs of an example, and time the best new one against the best old one."""
    problem = problems.load(ROOT / "examples" / name / "problem.py")
    with tempfile.TemporaryDirectory(prefix="kforge-recordings-") as cache:
        policy = EvaluationPolicy(compile_baseline=False)
        with Judge(platforms.find("cpu"), policy, cache=Path(cache), environment=dict(os.environ)) as judge:
            old, new = best(judge, problem, name, before), best(judge, problem, name, "HEAD")
            if old is None or new is None:
                return {"finding": "no correct program on one side"}
            for _ in range(TRIES):
                found = judge.head_to_head(problem, new, old)
                print(f"{name}: new against old: {found.in_words}", flush=True)
                if found.finding != "undecided":
                    break
    return found.model_dump(mode="json")


def best(judge: Judge, problem: Problem, name: str, commit: str) -> Candidate | None:
    """Return the correct program with the largest median speedup over eager."""
    speedups: dict[Candidate, float] = {}
    for number, program in enumerate(programs(name, commit)):
        correct = judge.evaluate(problem, program).correct
        if correct is not None and correct.timing is not None:
            speedups[program] = correct.timing.comparisons[0].speedup.median
        said = f"{speedups[program]:.2f}x" if program in speedups else "not correct"
        print(f"{name} at {commit}, program {number}: {said}", flush=True)
    return max(speedups, key=lambda each: speedups[each], default=None)


def programs(name: str, commit: str) -> Iterator[Candidate]:
    """Yield the programs of a recording in order. An answer with edits changes the program that its prompt shows."""
    for file in _git("ls-tree", "-r", "--name-only", commit, f"examples/{name}/exchange").split():
        if file.endswith(".reply.md"):
            prompt = _git("show", f"{commit}:{file.replace('.reply.', '.prompt.')}")
            read = parse_program(_git("show", f"{commit}:{file}"), base=_shown(prompt))
            if not isinstance(read, GenerationFailure):
                yield Candidate(source=read.source, platform="cpu")


def _shown(prompt: str) -> str | None:
    """Return the last program in a prompt, which is the one that an answer may edit."""
    found = [block for block in re.findall(r"```python\n(.*?)```", prompt, re.DOTALL) if "class ModelNew" in block]
    return found[-1] if found else None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("names", nargs="*", help="examples; all that were recorded at both by default")
    options = parser.parse_args()
    sys.exit(main(options.before, options.names))
