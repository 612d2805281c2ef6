"""Measures how often six programs of known order are ranked rightly while other processes use the machine.

    python benchmarks/tournament.py                        twenty tournaments beside two processes at full load
    python benchmarks/tournament.py --runs 3 --hogs 0      three, on the machine as it is

The programs do the same loop for 40, 46, 53, 61, 70 and 80 rounds, and are equal otherwise, so each takes about 15 %
longer than the one before. In a tournament they are inserted into a ranking one by one, in random order, and compared
by the head-to-head that also decides whether a rewrite replaces the best program of a run. A pair that is undecided is
timed again, twice at most. A tournament is right when the ranking is, and no pair stayed undecided. Each line tells one
tournament; the last one tells how many were right.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.platforms import host
from kforge.records import Candidate, EvaluationPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import HeadToHead, Problem

ROUNDS = (40, 46, 53, 61, 70, 80)
"""Rounds of the loop in each program, the fastest first."""
TRIES = 3
"""How often a pair is timed while it is undecided."""
PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sqrt(x * x + 1.0)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
PROGRAM = '''\
import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
#include <cstdint>
extern "C" void root(const float* __restrict__ x, float* __restrict__ out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float square = x[i] * x[i] + 1.0f;
        float y = 0.5f * (1.0f + square);
        for (int round = 0; round < ROUNDS; ++round) y = 0.5f * (y + square / y);
        out[i] = y;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.root(x, out, x.numel())
        return out
'''


@dataclass
class Tournament:
    """One ranking, and how its comparisons ended."""

    ranking: list[int] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    again: list[str] = field(default_factory=list)
    """Comparisons that were undecided at first."""
    wrong: list[str] = field(default_factory=list)
    """Comparisons whose finding contradicts the known order."""
    busy: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.ranking == sorted(ROUNDS) and not self.findings["undecided"]


def play(judge: Judge, problem: Problem, chance: random.Random) -> Tournament:
    """Rank the programs by insertion: each is compared with the middle of the part of the ranking it may belong to."""
    begin, found = time.monotonic(), Tournament()
    for rounds in chance.sample(ROUNDS, len(ROUNDS)):
        low, high = 0, len(found.ranking)
        while low < high:
            middle = (low + high) // 2
            rival = found.ranking[middle]
            for again in range(TRIES):
                result = judge.head_to_head(problem, program(rounds), program(rival))
                note(found, rounds, rival, result, is_last=again + 1 == TRIES)
                if result.finding != "undecided":
                    break
            # an undecided pair has no known order: the challenger goes behind, and the tournament is not right
            low, high = (low, middle) if result.finding == "faster" else (middle + 1, high)
        found.ranking.insert(low, rounds)
    found.seconds = time.monotonic() - begin
    return found


def note(found: Tournament, rounds: int, rival: int, result: HeadToHead, *, is_last: bool) -> None:
    if result.finding == "undecided" and not is_last:
        found.again.append(f"{rounds} against {rival}: {result.in_words}")
        return
    found.findings[result.finding] += 1
    found.busy.append(result.busy)
    truth = "faster" if rounds < rival else "slower"
    if result.finding not in (truth, "undecided"):
        found.wrong.append(f"{rounds} against {rival}: {result.in_words}")


def program(rounds: int) -> Candidate:
    return Candidate(source=PROGRAM.replace("ROUNDS", str(rounds)), platform="cpu")


def spin() -> None:
    """Use one processor until killed."""
    while True:
        pass


@contextmanager
def load(hogs: int) -> Iterator[None]:
    """Keep this many processes at full load."""
    started = [multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(hogs)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="number of tournaments")
    parser.add_argument("--hogs", type=int, default=2, help="number of other processes at full load")
    parser.add_argument("--seed", type=int, default=0, help="seed of the orders in which programs come")
    parser.add_argument("--json", type=Path, help="also write the tournaments to this file")
    options = parser.parse_args(arguments)
    played: list[Tournament] = []
    with tempfile.TemporaryDirectory() as folder, load(options.hogs):
        path = Path(folder) / "root.py"
        path.write_text(PROBLEM)
        problem = problems.load(path)
        policy = EvaluationPolicy(compile_baseline=False)
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        with Judge(platforms.find("cpu"), policy, cache=Path(folder) / "cache", environment=environment) as judge:
            for rounds in ROUNDS:
                evaluation = judge.evaluate(problem, program(rounds))
                if evaluation.correct is None:
                    print(f"the program of {rounds} rounds is not correct: {evaluation.verdict}", file=sys.stderr)
                    return 1
            chance = random.Random(options.seed)  # noqa: S311 - an order of programs is no secret
            for number in range(1, options.runs + 1):
                found = play(judge, problem, chance)
                played.append(found)
                print(line(number, found), flush=True)
    right = sum(each.is_right for each in played)
    wrong = sum(len(each.wrong) for each in played)
    compared = sum(sum(each.findings.values()) for each in played)
    undecided = sum(each.findings["undecided"] for each in played)
    print(
        f"{right} of {len(played)} tournaments are right, beside {options.hogs} processes at full load on "
        f"{host.threads()} processors; of {compared} comparisons {wrong} are wrong and {undecided} undecided"
    )
    if options.json is not None:
        options.json.write_text(json.dumps([vars(each) for each in played], indent=1) + "\n")
    return 0


def line(number: int, found: Tournament) -> str:
    verdict = "right" if found.is_right else f"not right: {found.ranking}"
    told = ", ".join(f"{count} {finding}" for finding, count in sorted(found.findings.items()))
    wrong = "".join([*(f"; wrong: {each}" for each in found.wrong), *(f"; again: {each}" for each in found.again)])
    busy = sum(found.busy) / max(1, len(found.busy))
    return f"{number}: {verdict} ({told}{wrong}); others used {busy:.0%} of the machine; {found.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
