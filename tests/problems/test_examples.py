"""The problems under examples/ load, run, and follow their size constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.problems import discover, load
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SMALLER = {
    "cosine_loss": ["ROWS=3", "FEATURES=5"],
    "linear_sum": ["BATCH=3", "IN_FEATURES=5", "OUT_FEATURES=7"],
    "rms_norm_gelu": ["ROWS=3", "FEATURES=5"],
    "softmax_scale": ["ROWS=3", "COLUMNS=5"],
}


def test_every_example_runs_at_another_size(root: Path) -> None:
    paths = {load(path).name: path for path in discover(root / "examples") if path.name == "problem.py"}
    assert sorted(paths) == sorted(SMALLER)
    for name, overrides in SMALLER.items():
        workload = instantiate(load(paths[name], overrides)).describe()
        assert workload.inputs[0].shape == (3, 5)
        assert workload.labels == ()
