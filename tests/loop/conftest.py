from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.loop.scripts import PROBLEM, open_judge

from kforge import problems
from kforge.store import Header, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.evaluation import Judge


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with open_judge(tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.fixture
def run(judge: Judge, tmp_path: Path) -> RunFolder:
    (tmp_path / "double.py").write_text(PROBLEM)
    problem = problems.load(tmp_path / "double.py")
    header = Header.new(
        problem=problem, workload=judge.describe(problem), platform="null", model="m", analyst="m", options={}
    )
    return RunFolder.create(tmp_path / "runs", header)
