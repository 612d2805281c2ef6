"""kforge from Python: a live module in, a verified drop-in module out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import kforge
from kforge.errors import ModelError, NothingCorrect, ProblemError
from kforge.records import Interval, Receipt

if TYPE_CHECKING:
    from pathlib import Path


class Projection(nn.Module):
    """A linear layer with a cut-off and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.register_buffer("gain", torch.linspace(0.5, 2.0, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.gain


PROGRAM = """\
```python
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.register_buffer("gain", torch.empty(8))

    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.t()).relu_().mul_(self.gain)
```
"""


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, clean_environment: dict[str, str], tmp_path: Path) -> None:
    """The library reads the user's settings: those of a user who has none."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "KFORGE_TIMING"):
        monkeypatch.setenv(name, clean_environment[name])
    for name in ("KFORGE_MODEL", "KFORGE_RUNS", "KFORGE_PLATFORM_PATH", "KFORGE_KEY_FILE", "KFORGE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def scripted(folder: Path, *answers: str) -> str:
    (folder / "script.json").write_text(json.dumps(answers))
    return f"scripted:{folder / 'script.json'}"


def test_a_drop_in_module(tmp_path: Path) -> None:
    module, x = Projection().eval(), torch.randn(32, 16)
    fast = kforge.forge(
        module, [x], model=scripted(tmp_path, PROGRAM), platform="null", iterations=1, compile_baseline=False
    )
    assert isinstance(fast, nn.Module)
    torch.testing.assert_close(fast(x), module(x))
    assert fast.training is False
    assert {name: value.shape for name, value in fast.state_dict().items()} == {
        name: value.shape for name, value in module.state_dict().items()
    }
    for name, value in module.state_dict().items():
        assert torch.equal(fast.state_dict()[name], value)
    assert isinstance(fast.receipt, Receipt)
    assert fast.receipt.platform == "null"
    assert isinstance(fast.speedup, Interval)
    assert fast.run.parent == tmp_path / "kforge-runs"
    assert "addmm" in (fast.run / "best.py").read_text()
    assert (fast.run / "state.pt").is_file()


@pytest.mark.slow
def test_without_a_model_the_smith_works(tmp_path: Path) -> None:
    module, x = nn.Softmax(dim=-1), torch.randn(64, 256)
    faster = kforge.forge(module, [x], platform="cpu", iterations=1, compile_baseline=False, runs=tmp_path / "mine")
    assert torch.allclose(faster(x), module(x), atol=1e-6)
    (best,) = (tmp_path / "mine").glob("*/best.py")
    assert "library.fused_softmax" in best.read_text()


def test_nothing_correct(tmp_path: Path) -> None:
    model = scripted(tmp_path, "I cannot do that.")
    with pytest.raises(NothingCorrect, match="no attempt was correct; see ") as caught:
        kforge.forge(nn.Linear(4, 4), [torch.randn(2, 4)], model=model, platform="null", runs=tmp_path / "mine")
    (run,) = (tmp_path / "mine").glob("*/")
    assert str(caught.value).endswith(str(run))


def test_input_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unknown model 'nonsense'"):
        kforge.forge(nn.Linear(4, 4), [torch.randn(2, 4)], model="nonsense", platform="null")
    with pytest.raises(ProblemError, match="hold no tensors"):
        kforge.forge(nn.Linear(4, 4), [], model="exchange", platform="null")
    assert not (tmp_path / "kforge-runs").exists()


def test_the_front_door() -> None:
    assert set(kforge.__all__) == {"__version__", "forge"}
    with pytest.raises(AttributeError, match="no attribute 'smelt'"):
        _ = kforge.smelt
