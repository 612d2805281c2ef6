"""What can be built before a suite's first problem is timed is built, by several processes, and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import settings
from kforge.problems import open_suite
from kforge.run_options import BUILTIN, RunOptions
from kforge.suite import SuiteSession, ahead

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * FACTOR

def get_inputs():
    return [torch.randn(64, 32)]

def get_init_inputs():
    return []
"""


LETHAL = """
import os, sys
if "kforge.suite.ahead" in sys.orig_argv:
    os._exit(1)
"""


def test_programs_are_built_and_neither_a_broken_problem_nor_a_lethal_one_stops_anybody(
    tmp_path: Path, clean_environment: dict[str, str], user_cache: Path
) -> None:
    chosen = settings.load(clean_environment)
    before = builds(user_cache)
    (tmp_path / "suite").mkdir()
    for name, factor in (("fine", "2"), ("broken", "nothing")):
        (tmp_path / "suite" / f"{name}.py").write_text(PROBLEM.replace("FACTOR", factor))
    (tmp_path / "suite" / "lethal.py").write_text(LETHAL + PROBLEM.replace("FACTOR", "4"))
    options = RunOptions(
        platform="cpu", model=BUILTIN, analyst=BUILTIN, iterations=1, replications=0, compile_baseline=False,
        sanitize=False,
    )  # fmt: skip
    session = SuiteSession.begin(open_suite(str(tmp_path / "suite")), options, chosen, root=tmp_path / "runs")
    tasks = session.folder.header.tasks
    tried = list(ahead.build(tasks, options, chosen, (), jobs=2))
    assert sorted(task.name for task in tried) == ["broken", "fine", "lethal"]
    built = builds(user_cache) - before
    assert len({path.parent for path in built}) == 1, "all that can be"

    states = {result.name: result.state for result in session.work()}
    assert states == {"broken": "broken", "fine": "correct", "lethal": "correct"}
    assert len({path.parent for path in builds(user_cache) - built - before}) == 1, "nothing had to be built again"


def builds(cache: Path) -> set[Path]:
    return set(cache.glob("builds/*/inline/*"))
