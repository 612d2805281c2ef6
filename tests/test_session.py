"""What holds before and around a run: the choice of platform and model, and who may work on it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kforge import settings
from kforge.agents import AnalysisAgent
from kforge.errors import InputError, ModelError, PlatformError, ProblemError, RunError, WaitingForReplies
from kforge.loop import RunLimits
from kforge.models import Image
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Outcome,
    Problem,
    Receipt,
    Replication,
    TensorSpec,
    Timing,
    Usage,
    Workload,
)
from kforge.run_options import RunOptions, choose_model, options_of
from kforge.session import Session, platform_at_hand, usable_platform
from kforge.store import Header, RunFolder
from kforge.store.program_memory import ProgramMemory, Remembered

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.settings import Settings

OPTIONS = RunOptions(platform="null", model="exchange", analyst="exchange", iterations=3, budget_minutes=0.5)


@pytest.fixture
def chosen(tmp_path: Path, clean_environment: dict[str, str]) -> Settings:
    return settings.load(clean_environment | {"KFORGE_RUNS": str(tmp_path / "runs")})


@pytest.fixture
def run(chosen: Settings) -> RunFolder:
    spec = TensorSpec(shape=(4,), dtype="float32")
    header = Header.new(
        problem=Problem(name="p", source="class Model: ...\n"),
        workload=Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=0, bytes_moved=32),
        platform="null",
        model="exchange",
        analyst="exchange",
        options={**OPTIONS.model_dump(), "platform_dirs": ""},
    )
    return RunFolder.create(chosen.runs, header, chosen.signing_key)


def test_a_mode_of_the_baseline_reaches_the_referee_and_old_runs_have_the_default(
    run: RunFolder, chosen: Settings
) -> None:
    options = {name: value for name, value in run.header.options.items() if name != "compile_mode"}
    for given, mode in (({}, "default"), ({"compile_mode": "max-autotune"}, "max-autotune")):
        header = run.header.model_copy(update={"options": {**options, **given}})
        with Session.resume(RunFolder.create(chosen.runs / mode, header, chosen.signing_key), chosen) as session:
            assert session.judge._setup.compile_mode == session.options.compile_mode == mode


def test_how_long_programs_are_timed_reaches_the_referee(run: RunFolder, clean_environment: dict[str, str]) -> None:
    with Session.resume(run, settings.load(clean_environment | {"KFORGE_TIMING": "2.5"})) as session:
        assert session.judge._setup.timing_seconds == 2.5


@pytest.mark.parametrize("option", ["precision", "track"])
def test_a_run_that_asks_for_what_kforge_does_not_have_is_refused(option: str) -> None:
    """Cause: such a run ended in the referee with a KeyError."""
    chosen = {"platform": "null", "model": "builtin", "analyst": "builtin", option: "none\n" * 50}
    with pytest.raises(RunError, match=f"its option {option}: .*unknown {option}") as refused:
        options_of(chosen, "/a/run")
    assert "\n" not in str(refused.value)


def test_options_say_when_to_stop() -> None:
    assert OPTIONS.limits == RunLimits(iterations=3, budget_seconds=30.0)


def test_the_model_asked_for_wins_over_the_configured_one(chosen: Settings, clean_environment: dict[str, str]) -> None:
    configured = settings.load(clean_environment | {"KFORGE_MODEL": "replay:recorded"})
    assert choose_model("exchange", configured) == "exchange"
    assert choose_model("", configured) == "replay:recorded"
    assert choose_model("", chosen) == "builtin"


def test_without_a_name_the_platform_at_hand_is_taken(chosen: Settings) -> None:
    assert usable_platform("", chosen).name == platform_at_hand(chosen)
    assert usable_platform("null", chosen).name == "null"
    with pytest.raises(PlatformError, match="no platform named 'abacus'"):
        usable_platform("abacus", chosen)


MANIFEST = """
name = "{name}"
title = "A platform"
language = "PyTorch"
fence = ["python"]
device = "cpu"
facts = ["It is there."]
kernels = "{kernels}"
preference = {preference}
builtin_speedup = {speedup}
"""


@pytest.fixture
def platform_dir(tmp_path: Path) -> Path:
    """Platforms that are preferred to all that ship. The built-in generator can write for all but the first, and is
    fastest on the least preferred one."""
    for name, kernels, preference, speedup in (
        ("favourite", "", 99, 0),
        ("slow", "c++", 98, 1.5),
        ("writable", "c++", 97, 99),
    ):
        folder = tmp_path / "platforms" / name
        (folder / "example").mkdir(parents=True)
        (folder / "platform.toml").write_text(
            MANIFEST.format(name=name, kernels=kernels, preference=preference, speedup=speedup)
        )
        for example in ("reference.py", "kernel.py"):
            (folder / "example" / example).write_text("")
    return tmp_path / "platforms"


def test_the_platform_at_hand_is_one_that_the_chosen_brain_can_write_for(chosen: Settings, platform_dir: Path) -> None:
    assert platform_at_hand(chosen, [platform_dir]) == "favourite"
    assert platform_at_hand(chosen, [platform_dir], model="openai:gpt") == "favourite"
    assert platform_at_hand(chosen, [platform_dir], model="builtin") == "writable"
    assert usable_platform("", chosen, [platform_dir]).name == "favourite", "a command without a brain"


def test_a_platform_without_its_device_is_not_chosen_for_its_language(chosen: Settings, platform_dir: Path) -> None:
    (platform_dir / "writable" / "adapter.py").write_text(
        "from kforge import platforms\n"
        "class Adapter(platforms.Adapter):\n"
        "    def synchronize(self): pass\n"
        "    def emulated(self): return 'it ran elsewhere'\n"
    )
    assert platform_at_hand(chosen, [platform_dir], model="builtin") not in ("writable", "favourite")


def test_a_real_device_without_a_language_is_not_chosen_for_the_built_in_brain(
    chosen: Settings, platform_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (platform_dir / "writable" / "adapter.py").write_text(
        "from kforge import platforms\n"
        "class Adapter(platforms.Adapter):\n"
        "    def synchronize(self): pass\n"
        "    def emulated(self): return 'it ran elsewhere'\n"
    )
    shutil.rmtree(platform_dir / "slow")
    monkeypatch.setattr("kforge.platforms.registry._BUILT_IN", platform_dir)
    assert platform_at_hand(chosen) == "favourite"
    assert platform_at_hand(chosen, model="builtin") == "writable"


def test_where_the_brain_can_write_for_no_platform_the_preferred_one_is_taken(
    chosen: Settings, platform_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.platforms.registry._BUILT_IN", platform_dir / "favourite")
    assert platform_at_hand(chosen, model="builtin") == "favourite"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"platform": "abacus"}, PlatformError), ({"model": "clever"}, ModelError), ({"analyst": "clever"}, ModelError)],
)
def test_what_cannot_work_leaves_no_run_behind(
    chosen: Settings, wrong: dict[str, str], error: type[InputError]
) -> None:
    problem = Problem(name="p", source="class Model: ...\n")
    with pytest.raises(error):
        Session.begin(problem, OPTIONS.model_copy(update=wrong), chosen, root=chosen.runs)
    assert not chosen.runs.exists()


def test_a_problem_that_cannot_be_described_leaves_nothing_behind(
    chosen: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(ProblemError, match="does not import: NameError"):
        Session.begin(Problem(name="p", source="Model\n"), OPTIONS, chosen, root=chosen.runs)
    assert not chosen.runs.exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_run_is_resumed_as_it_was_begun(chosen: Settings, run: RunFolder) -> None:
    with Session.resume(RunFolder.open(run.path), chosen) as session:
        assert session.options == OPTIONS
        assert session.platform.name == "null"


def test_two_cannot_work_on_one_run(chosen: Settings, run: RunFolder) -> None:
    with (
        Session.resume(RunFolder.open(run.path), chosen) as session,
        run.writing(),
        pytest.raises(RunError, match="is in use by process"),
    ):
        next(session.attempts())


# --- images -----------------------------------------------------------------------------------------------

SCREENSHOT = Image.of(b"\xff\xd8\xff a screenshot")


@pytest.fixture
def pictured(run: RunFolder, chosen: Settings) -> RunFolder:
    """A run that was begun with an image."""
    options = {**run.header.options, "images": SCREENSHOT.name, "profile_as": "both"}
    header = run.header.model_copy(update={"options": options})
    return RunFolder.create(chosen.runs / "pictured", header, chosen.signing_key, [SCREENSHOT])


def test_a_resumed_run_has_its_images_also_in_another_place(
    pictured: RunFolder, chosen: Settings, tmp_path: Path
) -> None:
    moved = shutil.move(pictured.path, tmp_path / "moved")
    with Session.resume(RunFolder.open(moved), chosen) as session:
        assert session.options.images == (SCREENSHOT,)
        analyst = session._analyst()
    assert isinstance(analyst, AnalysisAgent)
    assert (analyst.images, analyst.profile_as) == ((SCREENSHOT,), "both")


@pytest.mark.parametrize("damage", ["gone", "changed", "no image", "link", "folder is a link", "pipe"])
def test_an_image_that_is_not_the_one_of_the_run_is_refused(
    pictured: RunFolder, chosen: Settings, tmp_path: Path, damage: str
) -> None:
    image = pictured.path / "images" / SCREENSHOT.name
    (tmp_path / "secret").write_bytes(SCREENSHOT.content)
    if damage == "folder is a link":
        shutil.move(image.parent, tmp_path / "elsewhere")
        image.parent.symlink_to(tmp_path / "elsewhere")
    else:
        image.unlink()
    if damage in ("changed", "no image"):
        image.write_bytes(SCREENSHOT.content + b"!" if damage == "changed" else b"words")
    elif damage == "link":
        image.symlink_to(tmp_path / "secret")
    elif damage == "pipe":
        os.mkfifo(image)
    with pytest.raises(RunError) as refused:
        Session.resume(pictured, chosen)
    assert "\n" not in str(refused.value)
    assert "images" in str(refused.value)


@pytest.mark.parametrize("shown", [{"images": (SCREENSHOT,)}, {"profile_as": "image"}])
def test_images_are_for_a_model(shown: dict[str, Any], chosen: Settings) -> None:
    options = OPTIONS.model_copy(update={"analyst": "builtin", **shown})
    with pytest.raises(InputError, match="the built-in analyst reads text only: name a model"):
        Session.begin(Problem(name="p", source=""), options, chosen, root=chosen.runs)
    assert not chosen.runs.exists()


def test_a_run_that_would_draw_does_not_begin_without_matplotlib(
    chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options = OPTIONS.model_copy(update={"profile_as": "image"})
    with pytest.raises(InputError, match=r"--profile-as image needs matplotlib.* pip install 'kforge\[pictures\]'"):
        Session.begin(Problem(name="p", source=""), options, chosen, root=chosen.runs)
    assert not chosen.runs.exists()


# --- memory across runs -------------------------------------------------------------------------------------

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, {axis})


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""


def proven(index: int = 0, low: float = 1.5) -> Attempt:
    speedup = Interval(low=low, median=low + 0.1, high=low + 0.2)
    eager = Comparison(baseline="eager", identity="", seconds=1.0, speedup=speedup)
    receipt = Receipt(
        problem="p", candidate="c", platform="null", precision="strict", seed="s", device="a device", versions={},
        sandbox="none", timer="none",
    )  # fmt: skip
    timing = Timing(seconds=speedup, comparisons=(eager,), pairs=20)
    verdict = Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing)
    candidate = Candidate(source="class ModelNew: ...\n", platform="null")
    evaluation = Evaluation(verdict=verdict, receipt=receipt)
    return Attempt(index=index, phase="functional", candidate=candidate, evaluation=evaluation)


@pytest.mark.parametrize(
    ("low", "is_repeated", "changed", "is_kept"),
    [
        (1.5, True, {}, True),
        (1.5, False, {}, False),
        (0.9, True, {}, False),
        (1.5, True, {"remember": False}, False),
        (1.5, True, {"memory_without": "other, soft*"}, False),
    ],
)
def test_only_a_program_that_was_repeated_and_is_proven_faster_is_kept(
    run: RunFolder,
    chosen: Settings,
    tmp_path: Path,
    low: float,
    is_repeated: bool,
    changed: dict[str, Any],
    is_kept: bool,
) -> None:
    chosen = replace(chosen, cache=tmp_path / "cache")
    problem = Problem(name="softmax", source=MODEL.format(axis=0))
    options = {**run.header.options, **changed}
    header = run.header.model_copy(update={"problem": problem, "id": "20261118-1-softmax-aaaa", "options": options})
    made = RunFolder.create(chosen.runs, header, chosen.signing_key)
    best = proven(low=low)
    assert best.evaluation is not None
    replication = Replication(evaluations=(best.evaluation,)) if is_repeated else None
    outcome = Outcome(stopped="done", best=0, replication=replication, usage=Usage(), seconds=1.0)
    with made.writing():
        made.commit(best)
        made.finish(outcome)
    with Session.resume(made, chosen) as session:
        session._remember(outcome)
        memory = ProgramMemory(chosen.cache, "a device", "null", session.options.policy)
    other = Problem(name="other", source=MODEL.format(axis=-1))
    assert [each.problem for each in memory.recall(other, run.header.workload)] == ["softmax"] * is_kept


def test_programs_of_like_problems_are_told_unless_memory_is_off(
    chosen: Settings, tmp_path: Path, run: RunFolder
) -> None:
    chosen = replace(chosen, cache=tmp_path / "cache")
    problem = Problem(name="softmax", source=MODEL.format(axis=0))
    known = Remembered.of(Problem(name="like", source=MODEL.format(axis=-1)), run.header.workload, [proven()],
                          proven().evaluation)  # fmt: skip
    assert known is not None

    def prompt(**changed: Any) -> str:
        options = OPTIONS.model_copy(update=changed)
        with Session.begin(problem, options, chosen, root=chosen.runs) as session:
            ProgramMemory(chosen.cache, session.judge.device(), "null", options.policy).keep(known)
            with pytest.raises(WaitingForReplies):
                list(session.attempts())
            (file,) = session.run.exchange.glob("*.prompt.md")
            return file.read_text()

    told = "- like (softmax; float32[4] to float32[4]): the first program; 1.60x (1.50 to 1.70) over eager"
    assert told in prompt()
    assert "What worked on this device before" not in prompt(remember=False)
    assert "What worked on this device before" not in prompt(memory_without="l*")
