"""A kernel that is faster by itself is not used where calls of the forged module would be slower."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kforge.api import as_called, delivery
from kforge.drop_in.calls import Calls
from kforge.drop_in.module import ForgedKernel, Report, forged
from kforge.drop_in.program import Recipe
from kforge.drop_in.watched import Verified
from kforge.problems.tensors import HOST
from kforge.records import Interval

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROGRAM = """
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return torch.relu(x)
"""


class Slow(nn.ReLU):
    """A module that takes a millisecond."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(1e-3)
        return super().forward(x)


def forged_with(tmp_path: Path, module: nn.Module, x: torch.Tensor, seconds: float) -> Any:
    report = Report(run=tmp_path, finding="faster", speedup=Interval(median=3.0, low=2.0, high=4.0))
    kernel = ForgedKernel(
        report=report,
        recipe=Recipe(source=PROGRAM.format(seconds=seconds), arguments=(), constants={}, updates_state=False),
        calls=Calls([x], "cpu", module.forward),
        verified=Verified.of(module, set(), any_mode=True),
        device_type="cpu",
    )
    return forged(module, kernel)


def test_a_kernel_that_does_not_pay_as_called_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLOWER", as_called.SLOWER)
    x = torch.randn(4, 4)
    fast = delivery.worthwhile(forged_with(tmp_path, nn.ReLU(), x, seconds=1e-3), [x])
    assert fast.finding == "slower"
    assert fast.speedup.median < 0.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        delivery.warn(fast.report, stacklevel=1)
    (warning,) = caught
    assert "the module is slower, " in str(warning.message)
    assert "calls are so short" in str(warning.message)
    assert torch.equal(fast(x), torch.relu(x))
    assert fast._kforge_kernel.recipe is None, "the original runs"


def test_a_kernel_is_kept_where_noise_hides_whether_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = iter([1.0, 1.0, 1.0, 1.0, *[1.0, 0.3, 1.0, 2.0] * as_called.PAIRS])
    monkeypatch.setattr(as_called, "_block", lambda *_: 1e-3 * next(noisy))
    found = as_called.speedup_as_called(nn.ReLU(), nn.ReLU(), [torch.randn(4)], HOST)
    assert found is not None
    assert found.low < 1 < found.high
    monkeypatch.setattr(delivery, "speedup_as_called", lambda *_: found.model_copy(update={"median": 0.5}))
    x = torch.randn(4, 4)
    made = forged_with(tmp_path, Slow(), x, seconds=0)
    assert delivery.worthwhile(made, [x]) is made


def test_a_kernel_that_pays_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLOWER", as_called.SLOWER)
    x = torch.randn(4, 4)
    made = forged_with(tmp_path, Slow(), x, seconds=0)
    assert delivery.worthwhile(made, [x]) is made


def test_long_calls_are_not_looked_at() -> None:
    calls = []

    def long(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        time.sleep(2 * as_called.SHORT_CALL)
        return x

    assert as_called.speedup_as_called(long, long, [torch.randn(4)], HOST) is None
    assert len(calls) == 4


def test_inputs_of_the_user_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLOWER", as_called.SLOWER)
    x = torch.randn(4, 4)
    before = x.clone()
    delivery.worthwhile(forged_with(tmp_path, nn.ReLU(inplace=True), x, seconds=0), [x])
    assert torch.equal(x, before)
