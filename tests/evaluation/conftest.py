"""One judge for all tests that are not about time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.evaluation.untimed import UntimedJudge

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def untimed_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UntimedJudge]:
    """For tests of what is right and wrong: see `UntimedJudge`."""
    judge = UntimedJudge(tmp_path_factory.mktemp("cache"))
    yield judge
    judge.close()
