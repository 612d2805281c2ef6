"""Files of experiments over tiny problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.settings import Settings

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def chosen(tmp_path: Path, clean_environment: dict[str, str]) -> Settings:
    return settings.load(clean_environment | {"KFORGE_RUNS": str(tmp_path / "runs")})


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a suite of two problems, and beside it the file of an experiment with this text."""

    def write(
        text: str, head: str = 'name = "trial"\nquestion = "Does it help?"\nsuite = "suite"\nplatform = "null"'
    ) -> Path:
        for name in ("a", "b"):
            path = tmp_path / "suite" / "family" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PROBLEM)
        file = tmp_path / "trial.toml"
        file.write_text(f"{head}\n{text}")
        return file

    return write
