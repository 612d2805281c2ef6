"""The comparison of search strategies: same answers for all, and a fair test of the differences."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kforge.errors import RecordingExhausted
from kforge.records import Candidate, Problem, Workload

BENCHMARK = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "search.py")))
PROBLEM = Problem(name="p", source="")
WORKLOAD = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=0)


def test_the_same_program_gets_the_same_rewrites_whenever_it_is_asked_for() -> None:
    first, second = (
        BENCHMARK.ScriptedAgents(BENCHMARK.Script("valleys", 3), 9),
        BENCHMARK.ScriptedAgents(BENCHMARK.Script("valleys", 3), 9),
    )
    root = first.write(PROBLEM, WORKLOAD).candidate
    assert root is not None
    rewrites = [first.optimize(PROBLEM, WORKLOAD, root).candidate for _ in range(2)]
    other = second.write(PROBLEM, WORKLOAD).candidate
    second.write(PROBLEM, WORKLOAD)
    assert other == root
    assert [second.optimize(PROBLEM, WORKLOAD, root).candidate for _ in range(2)] == rewrites
    assert [BENCHMARK.place_of(each) for each in rewrites if each is not None] == ["0.0", "0.1"]


def test_every_call_of_either_agent_costs_one_of_the_budget() -> None:
    agents = BENCHMARK.ScriptedAgents(BENCHMARK.Script("smooth", 0), 2)
    root = agents.write(PROBLEM, WORKLOAD).candidate
    assert root is not None
    agents.recommend(PROBLEM, WORKLOAD, root)
    with pytest.raises(RecordingExhausted):
        agents.optimize(PROBLEM, WORKLOAD, root)


def test_known_speeds_are_those_of_the_sources() -> None:
    fast, slow = (Candidate(source=f"x + sum([0 * x] * {rounds})", platform="null") for rounds in (100, 200))
    assert BENCHMARK.speed_of(fast) - BENCHMARK.speed_of(slow) == pytest.approx(0.6931, abs=1e-4)
    assert BENCHMARK.KnownSpeeds(0).head_to_head(PROBLEM, fast, slow).finding == "faster"


@pytest.mark.parametrize(("faster", "slower", "p"), [(0, 0, 1.0), (5, 5, 1.0), (9, 1, 22 / 1024), (0, 6, 2 / 64)])
def test_the_sign_test_is_two_sided(faster: int, slower: int, p: float) -> None:
    assert BENCHMARK.sign_test(faster, slower) == pytest.approx(p)


def test_a_line_counts_wins_ties_and_losses() -> None:
    assert BENCHMARK.Comparisons((0.1, 0.1, 0.0, -0.1)).line().split("|")[1].strip() == "2 / 1 / 1"


def test_it_prints_a_row_for_each_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    assert BENCHMARK.main(["--scripts", "1", "--calls", "4"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 2 * 4
