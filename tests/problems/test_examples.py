"""The problems under examples/ load, run, and follow their size constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.problems import discover, load
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from pathlib import Path

SMALLER = {
    "cosine_loss": (["ROWS=3", "FEATURES=5"], (3, 5)),
    "depthwise_blur": (["BATCH=3", "CHANNELS=5", "SIZE=7"], (3, 5, 7, 7)),
    "group_norm_silu": (["BATCH=3", "CHANNELS=10", "SIZE=7", "GROUPS=5"], (3, 10, 7, 7)),
    "linear_sum": (["BATCH=3", "IN_FEATURES=5", "OUT_FEATURES=7"], (3, 5)),
    "nearest_code": (["ROWS=3", "CODES=7", "FEATURES=5"], (3, 5)),
    "rms_norm_gelu": (["ROWS=3", "FEATURES=5"], (3, 5)),
    "running_mean": (["BATCH=3", "STEPS=7", "FEATURES=5"], (3, 7, 5)),
    "softmax_scale": (["ROWS=3", "COLUMNS=5"], (3, 5)),
}
"""What each problem is given, and the shape of its first input then."""


def test_every_example_runs_at_another_size(root: Path) -> None:
    paths = {load(path).name: path for path in discover(root / "examples") if path.name == "problem.py"}
    assert sorted(paths) == sorted(SMALLER)
    for name, (overrides, shape) in SMALLER.items():
        workload = instantiate(load(paths[name], overrides)).describe()
        assert workload.inputs[0].shape == shape
        assert workload.labels == ()
