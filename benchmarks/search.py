"""Compares `best-of`, `beam` and `tree` with `linear` on scripted answers, with the same budget of model calls.

    python benchmarks/search.py                           100 scripts of each kind, speeds as the scripts say
    python benchmarks/search.py --measured --scripts 4    every program is really built, judged and timed

A script says what every rewrite of every program gives: how fast it is, or that it is wrong, and which repair mends it.
It depends on its seed and on the program's place in the tree, and not on the strategy or the order of its questions, so
all strategies get the same answers. Programs double a tensor and also do useless rounds, so their speeds are known.
There are two kinds:

    smooth     every rewrite is better or worse than its parent by chance, up to what the device allows
    valleys    each way of computing has a limit, and a better way begins with a program that is slower

Without `--measured` the loop, the strategies and their bookkeeping are the real ones, and a head-to-head returns the
true ratio with a random error of 2 %. The result of a run is the true speed of the program that it calls best. Each
strategy is compared with `linear` script by script: the mean ratio of speeds with a 95 % bootstrap interval, how often
it was faster, equal and slower, and the p-value of a two-sided sign test. These scripts show where a strategy helps.
How often valleys occur with real models, only runs with models can show.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kforge import platforms, problems
from kforge.errors import RecordingExhausted
from kforge.evaluation import Judge
from kforge.loop import RunLimits, Workshop, forge
from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    HeadToHead,
    Interval,
    Mismatch,
    Peaks,
    Profile,
    Receipt,
    Recommendation,
    Roofline,
    Timing,
    Usage,
    Workload,
)
from kforge.roles import Advice, Answer
from kforge.search import strategy
from kforge.store import Header, RunFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Problem

KINDS = ("smooth", "valleys")
"""Kinds of scripts."""
STRATEGIES = ("best-of:3", "beam:3", "tree")
"""Strategies that are compared with `linear`."""
SLOWEST = 400
"""Useless rounds of a program whose logarithmic speed is 0."""
USUAL_GAIN = math.log(1.3)
"""Mean logarithm of what a good rewrite gains, and of what a bad one loses."""
WRONG_SHARE, MENDED_SHARE = 0.25, 0.6
"""Share of rewrites that are wrong, and of repairs that mend one."""
VALLEY_SHARE, VALLEY_DEPTH, VALLEY_RISE = 0.2, 0.15, 0.9
"""Share of rewrites that begin a better way of computing, how much slower they are at first, and how much higher the
limit of the new way is. Speeds are logarithms."""
DEVICE_LIMIT = math.log(8.0)
"""Logarithm of the speed that no program of a smooth script exceeds."""
LIMIT_MEAN = 0.3
"""Mean logarithm by which the limit of a way of computing exceeds the fastest first program, in valleys."""
NOISE = 0.02
"""Standard deviation of the random error in the logarithm of a head-to-head's ratio, without `--measured`."""
PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""
PROGRAM = """\
# node {node}
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {factor} * x + sum([0 * x] * {rounds})
"""


@dataclass(frozen=True)
class Node:
    """A program of a script."""

    place: str
    """Its path in the tree: `2.0.1r0` is the first repair of the second rewrite of the first rewrite of the third
    first program."""
    speed: float
    """Logarithm of its speed, if it is right."""
    limit: float
    """Highest logarithmic speed of its way of computing."""
    is_right: bool

    @property
    def source(self) -> str:
        rounds = max(1, round(SLOWEST * math.exp(-self.speed)))
        return PROGRAM.format(node=self.place, factor=2 if self.is_right else 3, rounds=rounds)


class Script:
    """A model's answers: a function of the seed and of the program that is continued."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.seed = seed

    def node(self, place: str) -> Node:
        chance = random.Random(hashlib.sha256(f"{self.kind} {self.seed} {place}".encode()).digest())  # noqa: S311
        if "r" in place.rpartition(".")[2]:
            broken = self.node(place.rpartition("r")[0])
            return Node(place, broken.speed, broken.limit, is_right=chance.random() < MENDED_SHARE)
        is_right = chance.random() >= WRONG_SHARE
        above, dot, _ = place.rpartition(".")
        if not dot:
            return Node(place, chance.uniform(0.0, 0.3), self._limit(chance), is_right)
        parent = self.node(above)
        if self.kind == "valleys" and chance.random() < VALLEY_SHARE:
            return Node(place, parent.speed - VALLEY_DEPTH, parent.limit + VALLEY_RISE, is_right)
        gain = chance.expovariate(1 / USUAL_GAIN) * (1 if chance.random() < 0.5 else -1)
        return Node(place, min(parent.limit, parent.speed + gain), parent.limit, is_right)

    def _limit(self, chance: random.Random) -> float:
        return 0.3 + chance.expovariate(1 / LIMIT_MEAN) if self.kind == "valleys" else DEVICE_LIMIT


class ScriptedAgents:
    """Both agents. Each call takes one from the budget. The n-th rewrite of a program is always the same."""

    reads_history = False

    def __init__(self, script: Script, budget: int) -> None:
        self.script = script
        self.left = budget
        self.asked: Counter[str] = Counter()

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> ScriptedAgents:  # noqa: ARG002 - the program decides
        return self

    def write(self, problem: Problem, workload: Workload) -> Answer:  # noqa: ARG002
        return self._answer("", "")

    def repair(self, problem: Problem, workload: Workload, candidate: Any, verdict: Any, **_: Any) -> Answer:  # noqa: ARG002
        return self._answer(place_of(candidate), "r")

    def optimize(self, problem: Problem, workload: Workload, candidate: Candidate, *_: Any) -> Answer:  # noqa: ARG002
        return self._answer(place_of(candidate), ".")

    def recommend(self, problem: Problem, workload: Workload, candidate: Candidate, *_: Any) -> Advice:  # noqa: ARG002
        self._pay()
        idea = f"rewrite {place_of(candidate)}, idea {self.left}"
        said = Recommendation(bottleneck="rounds", action=idea, rationale="r", evidence="e", expected_gain="some")
        return Advice(recommendation=said, requests=(), usage=Usage(requests=1))

    def _answer(self, place: str, joint: str) -> Answer:
        self._pay()
        below = f"{place}{joint}{self.asked[place + joint]}"
        self.asked[place + joint] += 1
        candidate = Candidate(source=self.script.node(below).source, platform="null")
        return Answer(candidate=candidate, requests=(), usage=Usage(requests=1))

    def _pay(self) -> None:
        if not self.left:
            raise RecordingExhausted("the budget of model calls is spent")
        self.left -= 1


class KnownSpeeds:
    """A judge that reads a program's speed from its source, and compares two with a random error."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311

    def evaluate(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:  # noqa: ARG002
        receipt = Receipt(
            problem=problem.digest, candidate=candidate.digest, platform="null", precision="strict", seed="0",
            device="none", versions={}, sandbox="none", timer="none",
        )  # fmt: skip
        if "3 * x" in candidate.source:
            wrong = Mismatch(kind="numerical", reason="wrong", max_error=1.0, tolerance=1e-5)
            return Evaluation(verdict=wrong, receipt=receipt)
        seconds = 1e-6 * math.exp(-speed_of(candidate))
        known = Interval(median=seconds, low=seconds, high=seconds)
        ratio = Interval(median=1.0, low=1.0, high=1.0)
        eager = Comparison(baseline="eager", identity="none", seconds=seconds, speedup=ratio)
        timing = Timing(seconds=known, comparisons=(eager,), pairs=20)
        return Evaluation(verdict=Correct(max_error=0.0, tolerance=1e-5, cases=1, timing=timing), receipt=receipt)

    def head_to_head(self, _: Problem, challenger: Candidate, rival: Candidate) -> HeadToHead:
        true = speed_of(challenger) - speed_of(rival)
        seen = true + self._chance.gauss(0.0, NOISE)
        low, high = seen - 2 * NOISE, seen + 2 * NOISE
        finding = "faster" if low > 0 else "slower" if high < 0 else "undecided"
        speedup = Interval(median=math.exp(seen), low=math.exp(low), high=math.exp(high))
        return HeadToHead.model_validate({"finding": finding, "speedup": speedup})

    def profile(self, _: Problem, candidate: Candidate, seconds: float) -> Profile:  # noqa: ARG002
        peaks = Peaks(device="none", bytes_per_second=1.0, flops_per_second=1.0)
        roofline = Roofline(peaks=peaks, memory_seconds=0.0, compute_seconds=0.0)
        return Profile(tool="none", seconds=seconds, hot_spots=(), roofline=roofline, digest_text="none")


def place_of(candidate: Candidate) -> str:
    return candidate.source.partition("\n")[0].removeprefix("# node ")


def speed_of(candidate: Candidate) -> float:
    """Return the true logarithmic speed of a program, from its rounds."""
    (rounds,) = re.findall(r"\* (\d+)\)", candidate.source)
    return math.log(SLOWEST / int(rounds))


def best_speed(script: Script, name: str, budget: int, judge: Judge, folder: Path) -> float:
    """Return the true logarithmic speed of the program that a run with this strategy calls best; 0 if none is right."""
    (folder / "double.py").write_text(PROBLEM)
    problem = problems.load(folder / "double.py")
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=0)
    header = Header.new(problem=problem, workload=workload, platform="null", model="m", analyst="m", options={})
    run = RunFolder.create(folder, header)
    agents = ScriptedAgents(script, budget)
    workshop = Workshop(cast("Any", agents), cast("Any", agents), judge, search=strategy(name))
    with run.writing():
        list(forge(run, workshop, RunLimits(budget, replications=0, sanitize=False, roofline_share=9.0)))
    best = run.best()
    return speed_of(best.candidate) if best is not None and best.candidate is not None else 0.0


@dataclass(frozen=True)
class Comparisons:
    """A strategy against `linear`, script by script: differences of logarithmic speeds."""

    differences: tuple[float, ...]

    def line(self) -> str:
        chance = random.Random(0)  # noqa: S311
        count = len(self.differences)
        means = sorted(statistics.fmean(chance.choices(self.differences, k=count)) for _ in range(2000))
        low, high = means[int(0.025 * len(means))], means[int(0.975 * len(means))]
        mean, faster = statistics.fmean(self.differences), sum(each > 1e-9 for each in self.differences)
        slower = sum(each < -1e-9 for each in self.differences)
        ratio = f"{math.exp(mean):.3f}x ({math.exp(low):.3f} to {math.exp(high):.3f})"
        return f"{ratio} | {faster} / {count - faster - slower} / {slower} | {sign_test(faster, slower):.2g}"


def sign_test(faster: int, slower: int) -> float:
    """Return the two-sided p-value of these numbers of wins and losses, if both were equally likely."""
    count, fewer = faster + slower, min(faster, slower)
    return min(1.0, 2 * sum(math.comb(count, k) for k in range(fewer + 1)) / 2**count)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=100, help="number of scripts of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first script")
    parser.add_argument("--calls", type=int, default=60, help="model calls of each run, of both agents together")
    parser.add_argument("--measured", action="store_true", help="build, judge and time every program")
    parser.add_argument("--json", type=Path, help="also write the speeds to this file")
    options = parser.parse_args(arguments)
    speeds: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            speeds[kind] = {name: [] for name in ("linear", *STRATEGIES)}
            for seed in range(options.first, options.first + options.scripts):
                script = Script(kind, seed)
                for name, found in speeds[kind].items():
                    place = Path(folder) / kind / str(seed) / name.replace(":", "-")
                    place.mkdir(parents=True)
                    judge = opened(Path(folder)) if options.measured else cast("Judge", KnownSpeeds(seed))
                    found.append(best_speed(script, name, options.calls, judge, place))
                    if options.measured:
                        judge.close()
                        print(f"{kind} {seed} {name}: {math.exp(found[-1]):.2f}x", file=sys.stderr, flush=True)
    how = "built, judged and timed" if options.measured else "with known speeds"
    print(f"{options.scripts} scripts of each kind, {options.calls} model calls a run, programs {how}\n")
    print("| scripts | strategy | speed of the best | against linear | faster / equal / slower | sign test |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind, found in speeds.items():
        for name, values in found.items():
            mean = math.exp(statistics.fmean(values))
            pairs = zip(values, found["linear"], strict=True)
            against = "| |" if name == "linear" else Comparisons(tuple(own - other for own, other in pairs)).line()
            print(f"| {kind} | `{name}` | {mean:.2f}x | {against} |")
    if options.json is not None:
        options.json.write_text(json.dumps(speeds, indent=1) + "\n")
    return 0


def opened(folder: Path) -> Judge:
    """Return a judge that really times programs, for a short while each."""
    return Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=folder / "cache",
        environment={"PATH": os.environ.get("PATH", os.defpath)},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.3),
    )


if __name__ == "__main__":
    sys.exit(main())
