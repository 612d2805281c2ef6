"""kforge from Python: a live module in, a verified drop-in module out."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import kforge
from kforge import phrases, settings
from kforge.api import arguments
from kforge.errors import InputError, NothingCorrect
from kforge.problems.instance import instantiate
from kforge.records import Interval, Receipt
from kforge.run_options import RunOptions
from kforge.store import RunFolder

if TYPE_CHECKING:
    from tests.conftest import RunKforge


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


def scripted(folder: Path, *answers: str) -> str:
    (folder / "script.json").write_text(json.dumps(answers))
    return f"scripted:{folder / 'script.json'}"


QUICK: dict[str, Any] = {
    "iterations": 1, "compile_baseline": False, "replications": 0, "sanitize": False, "progress": False,
}  # fmt: skip


def forge(module: nn.Module, inputs: Any, **options: Any) -> kforge.ForgedModule:
    """Without a warning about speed: a test machine is busy, and small modules have nothing to win."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kforge.SpeedWarning)
        warnings.filterwarnings("ignore", "with the best kernel the module is slower")
        return kforge.forge(module, inputs, **{**QUICK, **options})


FORGED: list[tuple[Projection, torch.Tensor, Path]] = []


@pytest.fixture
def forged(at_home: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Projection, Any, Path]:
    """A module, its inputs, and a run folder of the test's own: a copy of one that was forged once."""
    if not FORGED:
        module, x = Projection().eval(), torch.randn(32, 16)
        folder = tmp_path_factory.mktemp("forged")
        made = forge(module, x, model=scripted(folder, PROGRAM), platform="null", runs=folder / "runs").run
        FORGED.append((module, x, made))
    module, x, made = FORGED[0]
    return module, x, Path(shutil.copytree(made, tmp_path / "kforge-runs" / made.name))


def test_a_drop_in_module(tmp_path: Path) -> None:
    module, x = Projection().eval(), torch.randn(32, 16)
    fast = forge(module, [x], model=scripted(tmp_path, PROGRAM), platform="null")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
    assert isinstance(fast, Projection)
    assert fast.training is False
    assert fast.linear.weight is module.linear.weight
    assert list(fast.state_dict()) == list(module.state_dict())
    assert isinstance(fast.receipt, Receipt)
    assert fast.receipt.platform == "null"
    assert isinstance(fast.speedup, Interval)
    assert fast.finding in ("faster", "slower", "cannot tell", "not measured")
    assert "library" in fast.labels
    assert fast.run.parent == tmp_path / "kforge-runs"
    assert "addmm" in (fast.run / "best.py").read_text()
    assert (fast.run / "state.pt").is_file()


def test_the_replicated_speedup_is_the_one_that_counts(tmp_path: Path) -> None:
    model = scripted(tmp_path, PROGRAM)
    fast = forge(Projection().eval(), torch.randn(32, 16), model=model, platform="null", replications=1)
    outcome = RunFolder.open(fast.run).outcome()
    assert outcome is not None
    assert outcome.replication is not None
    assert fast.speedup == outcome.replication.comparisons[0].speedup
    assert fast.finding == phrases.finding(outcome.replication.comparisons[0])


def with_finding(run: Path, low: float, high: float, doubt: str | None = None) -> Path:
    """The run as it would be had its best program been that fast, or had that been seen only."""
    outcome = RunFolder.open(run).outcome()
    assert outcome is not None
    file = run / "attempts" / f"{outcome.best:03d}" / "attempt.json"
    attempt = json.loads(file.read_text())
    (comparison,) = attempt["evaluation"]["verdict"]["timing"]["comparisons"]
    comparison.update(speedup={"median": (low + high) / 2, "low": low, "high": high}, doubt=doubt)
    file.write_text(json.dumps(attempt))
    sign(run, outcome.best)
    return run


def sign(run: Path, index: int | None) -> None:
    """Sign an attempt as it is now, as if this user had made it."""
    assert index is not None
    file = run / "attempts" / f"{index:03d}" / "attempt.json"
    purpose = RunFolder.open(run)._purpose(index)
    settings.load().signing_key.write_signature(file.with_name("signature"), purpose, file.read_bytes(), within=run)


def test_what_is_slower_is_not_used_and_what_is_unsure_is_said(forged: tuple[Projection, Any, Path]) -> None:
    module, x, run = forged
    with pytest.warns(kforge.FallbackWarning, match=r"the module is slower, 0.50x \(0.40 to 0.60\)") as caught:
        slow = kforge.load(with_finding(run, 0.4, 0.6), module)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert slow.finding == "slower"
    assert slow._kforge_kernel.recipe is None
    assert torch.equal(slow(x), module(x))
    with pytest.warns(
        kforge.SpeedWarning, match=r"not known whether it is faster: cannot tell, 1.10x \(0.90 to 1.30\)"
    ):
        unsure = kforge.load(with_finding(run, 0.9, 1.3), module)
    assert unsure.finding == "cannot tell"
    doubtful = r"not known whether it is faster: not measured; 2.00x seen \(a busy machine\)"
    with pytest.warns(kforge.SpeedWarning, match=doubtful):
        unmeasured = kforge.load(with_finding(run, 1.5, 2.5, "a busy machine"), module)
    assert unmeasured.finding == "not measured"
    fast = kforge.load(with_finding(run, 1.5, 2.5), module)
    assert fast.finding == "faster"
    for each in (unsure, unmeasured, fast):
        with torch.no_grad():
            torch.testing.assert_close(each(x), module(x))
        assert each._kforge_dispatch._bound.program is not None


def test_no_kernel_found(tmp_path: Path) -> None:
    module, x = Projection().eval(), torch.randn(32, 16)
    with pytest.warns(kforge.FallbackWarning, match="no kernel found: .* no kernel language for platform null"):
        same = kforge.forge(module, x, platform="null", model="builtin", **QUICK)
    assert (same.finding, same.speedup, same.receipt) == ("no kernel found", None, None)
    assert torch.equal(same(x), module(x))
    assert same(x).requires_grad
    with pytest.raises(NothingCorrect, match=r"call kforge\.load\(run, module\)"):
        kforge.load(same.run)


def test_nothing_correct(tmp_path: Path) -> None:
    model = scripted(tmp_path, "I cannot do that.")
    with pytest.raises(NothingCorrect, match="no attempt was correct; see ") as caught:
        forge(nn.Linear(4, 4), [torch.randn(2, 4)], model=model, platform="null", runs=tmp_path / "mine")
    (run,) = (tmp_path / "mine").glob("*/")
    assert str(caught.value).endswith(str(run))
    with pytest.raises(NothingCorrect, match="no attempt was correct; see "):
        kforge.load(run)


# --- loading --------------------------------------------------------------------------------------------------------


def test_a_run_is_loaded_with_and_without_its_module(forged: tuple[Projection, Any, Path]) -> None:
    module, x, run = forged
    with_finding(run, 1.5, 2.5)
    alone = kforge.load(run.name)
    with torch.no_grad():
        torch.testing.assert_close(alone(x), module(x))
        with pytest.raises(InputError, match=r"loaded without its original .* shape \(2, 16\)"):
            alone(x[:2])
    with pytest.raises(InputError, match="gradients are needed"):
        alone(x)
    trained = Projection().eval()
    fast = kforge.load(run, module=trained)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), trained(x))
        with pytest.warns(kforge.FallbackWarning):
            torch.testing.assert_close(fast(x[:2]), trained(x[:2]))
    with pytest.raises(InputError, match="does not agree with the module"):
        kforge.load(run, nn.Linear(16, 8))
    with pytest.raises(InputError, match="no run 'nonsense'"):
        kforge.load("nonsense")


def test_code_of_others_in_a_run_is_loaded_only_with_trust(
    forged: tuple[Projection, Any, Path], tmp_path: Path
) -> None:
    """The program runs in the user's own process, without a sandbox. (cause: receipts)"""
    module, _, run = forged
    with_finding(run, 1.5, 2.5)
    trace = tmp_path / "ran"
    (file,) = run.glob("attempts/*/attempt.json")
    attempt, ours = json.loads(file.read_text()), file.read_text()
    attempt["candidate"]["source"] += f"\nopen({str(trace)!r}, 'w').close()\n"
    file.write_text(json.dumps(attempt))
    with pytest.raises(InputError, match=r"was not made by you on this machine.*trust=True"):
        kforge.load(run, module)
    with pytest.raises(InputError, match=r"best\.py is not the program that would run"):
        kforge.load(run, module, trust=True)  # cause: the user read best.py, and other code ran
    assert not trace.exists()
    read = (run / "best.py").read_text()
    (run / "best.py").write_text(attempt["candidate"]["source"])
    kforge.load(run, module, trust=True)
    assert trace.exists()
    file.write_text(ours)
    (run / "best.py").write_text(read)
    kforge.load(run, module)
    result, told = run / "result.json", (run / "result.json").read_text()
    for change in (lambda: result.write_text(told.replace("iteration", "iterations")), result.unlink):
        change()  # cause: the outcome was not signed, and an edited or absent one decided what is loaded
        with pytest.raises(InputError, match=r"has no result signed by you.*kforge resume"):
            kforge.load(run, module)
    result.write_text(told)
    (run / "run.json").write_bytes((run / "run.json").read_bytes() + b" ")
    with pytest.raises(InputError, match="was not made by you"):
        kforge.load(run, module)


def test_a_run_of_a_problem_file_is_loaded_with_its_own_model(
    tmp_path: Path, root: Path, kforge_in_process: RunKforge
) -> None:
    model = "replay:" + str(root / "examples/softmax_scale/exchange")
    problem = root / "examples/softmax_scale/problem.py"
    kforge_in_process(
        "forge", problem, "-p", "cpu", "-m", model, "-n", "2", "--no-compile-baseline", "--replications", "0",
        "--no-sanitize", "-o", tmp_path / "mine",
    )  # fmt: skip
    (run,) = (tmp_path / "mine").glob("*/")
    fast = kforge.load(with_finding(run, 1.5, 2.5))
    inputs = instantiate(RunFolder.open(run).header.problem).inputs(0)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), type(fast).forged_from.forward(fast, *inputs))
        assert fast._kforge_dispatch._bound.program is not None
        with pytest.warns(kforge.FallbackWarning, match="shape"):
            assert fast(inputs[0][:3]).shape[0] == 3


# --- input that cannot be used --------------------------------------------------------------------------------------


def function(x: torch.Tensor) -> torch.Tensor:
    return x


LINEAR, X = nn.Linear(4, 4), torch.randn(2, 4)
WRONG: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "precision": (LINEAR, [X], {"precision": "foo"}, "precision must be one of strict, tf32, half, not 'foo'"),
    "track": (LINEAR, [X], {"track": "foo"}, "track must be one of library, custom"),
    "mode": (LINEAR, [X], {"compile_mode": "foo"}, "compile_mode must be one of default, "),
    "form of the profile": (LINEAR, [X], {"profile_as": "film"}, "profile_as must be one of text, image, both"),
    "images": (LINEAR, [X], {"images": "a.png"}, "images must be a list of file names, not 'a.png'"),
    "missing image": (LINEAR, [X], {"images": ["gone.png"]}, "cannot read gone.png: No such file or directory"),
    "images without a model": (LINEAR, [X], {"profile_as": "image"}, "the built-in analyst reads text only"),
    "mode of nothing": (
        LINEAR, [X], {"compile_mode": "max-autotune", "compile_baseline": False}, "compile_mode has no effect",
    ),
    "search": (LINEAR, [X], {"search": "deep"}, "search: unknown search 'deep'; choose linear, best-of:N"),
    "iterations": (LINEAR, [X], {"iterations": 0}, "iterations must be a whole number of at least 1, not 0"),
    "half an iteration": (LINEAR, [X], {"iterations": 1.5}, "iterations must be a whole number"),
    "replications": (LINEAR, [X], {"replications": -1}, "replications must be a whole number of at least 0"),
    "target": (LINEAR, [X], {"target_speedup": -2.0}, "target_speedup must be a number of at least 0"),
    "endless target": (LINEAR, [X], {"target_speedup": float("inf")}, "target_speedup must be"),
    "a function": (function, [X], {}, "module must be an nn.Module, not function; put the function into the forward"),
    "a class": (nn.Linear, [X], {}, "module must be an nn.Module object, not the class Linear"),
    "a lazy module": (nn.LazyLinear(3), [X], {}, "'weight' of the module has no shape yet"),
    "no values": (nn.Linear(4, 4, device="meta"), [X], {}, "'weight' of the module is on the meta device"),
    "inputs that are no sequence": (LINEAR, 3, {}, "example_inputs must be a tensor, or a list or tuple"),
    "inputs by keyword": (LINEAR, {"input": X}, {}, "example_inputs must be a tensor, or a list or tuple .* not dict"),
    "no inputs": (LINEAR, [], {}, "the example inputs hold no tensors"),
    "platform": (LINEAR, [X], {"platform": "foo"}, "no platform named 'foo'"),
    "model": (LINEAR, [X], {"model": "nonsense"}, "unknown model 'nonsense'"),
    "keyword": (LINEAR, [X], {"iteration": 3}, "kforge.forge has no argument 'iteration'; did you mean 'iterations'?"),
    "progress": (LINEAR, [X], {"progress": 3}, "progress must be a function"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_said_before_any_work(case: str, tmp_path: Path) -> None:
    module, inputs, options, says = WRONG[case]
    lines: list[str] = []
    with pytest.raises(InputError, match=says) as caught:
        kforge.forge(module, inputs, **{"platform": "null", "progress": lines.append, **options})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "kforge-runs").exists()


def test_its_options_are_those_of_a_run() -> None:
    chosen_otherwise = {"platform", "model", "unsafe", "seed", "plan", "reference", "reference_platform"}
    assert arguments.ForgeOptions.__annotations__.keys() == RunOptions.model_fields.keys() - chosen_otherwise


def test_a_compiled_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"wrapped by torch\.compile; .*module\._orig_mod"):
        kforge.forge(torch.compile(LINEAR, backend="eager"), [X], platform="null")


# --- progress -------------------------------------------------------------------------------------------------------


def test_progress_is_shown_on_standard_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = scripted(tmp_path, PROGRAM)
    forge(Projection().eval(), torch.randn(32, 16), model=model, platform="null", progress=None)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(r"^kforge \[ +0\.\d s\] Projection on null with scripted:\S+: tracing the module$", err, re.M)
    assert re.search(r"^kforge \[ +\d+\.\d s\] attempt 0: correct, (\d|not measured)", err, re.M)
    assert err.count("checking correctness: case") <= 2
    forge(Projection().eval(), torch.randn(32, 16), model=model, platform="null", progress=False)
    assert capfd.readouterr() == ("", "")


def test_progress_goes_to_the_users_function(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    forge(
        Projection().eval(),
        torch.randn(32, 16),
        model=scripted(tmp_path, PROGRAM),
        platform="null",
        progress=lines.append,
    )
    assert "tracing the module" in lines[0]
    assert any(line.startswith("attempt 0: correct") for line in lines)
    assert capfd.readouterr() == ("", "")


def test_what_torch_export_dumps_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(InputError, match=r"torch\.export cannot trace the module: ") as caught:
        forge(Branch(), torch.ones(3), platform="null")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_the_front_door() -> None:
    functions = {"evaluate", "forge", "forge_suite", "load", "profile"}
    verdicts = {
        "CompilationFailure",
        "Correct",
        "GenerationFailure",
        "Mismatch",
        "Rejected",
        "RuntimeFailure",
        "Verdict",
    }
    assert functions | verdicts | {"FallbackWarning", "ForgedModule", "SpeedWarning"} <= set(kforge.__all__)
    for name in kforge.__all__:
        assert getattr(kforge, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'smelt'"):
        _ = kforge.smelt
