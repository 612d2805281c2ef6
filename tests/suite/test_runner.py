"""A suite goes on whatever breaks in one of its problems, and tries that again when it is resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kforge import settings
from kforge.errors import EvaluationError, InputError, ModelError, ProviderError, RunError, WaitingForReplies
from kforge.problems import open_suite
from kforge.run_options import RunOptions
from kforge.session import Session
from kforge.store import RunFolder, SuiteFolder
from kforge.suite import SuiteSession, result_of, shared_judge, summarize
from kforge.suite.runner import results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kforge.records import Outcome
    from kforge.settings import Settings

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
NAMES = ["one/a", "one/b", "two/c"]


@pytest.fixture
def chosen(tmp_path: Path, clean_environment: dict[str, str]) -> Settings:
    return settings.load(clean_environment | {"KFORGE_RUNS": str(tmp_path / "runs")})


@pytest.fixture
def begin(tmp_path: Path, chosen: Settings) -> Callable[..., SuiteSession]:
    """A suite of these problems, for a model that has nothing to say."""

    def make(names: Sequence[str] = NAMES, **more: Any) -> SuiteSession:
        for name in names:
            path = tmp_path / "suite" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PROBLEM)
        (tmp_path / "script.json").write_text(json.dumps([]))
        model = f"scripted:{tmp_path / 'script.json'}"
        options = RunOptions.model_validate({"platform": "null", "model": model, "analyst": model, **more})
        return SuiteSession.begin(open_suite(str(tmp_path / "suite")), options, chosen, root=chosen.runs)

    return make


def breaking(monkeypatch: pytest.MonkeyPatch, errors: dict[str, Exception]) -> list[str]:
    """Work on the problems of these names breaks so; the names of all that were worked on."""
    seen: list[str] = []
    real = Session.attempts

    def attempts(self: Session, *arguments: Any) -> Iterator[Any]:
        name = self.run.header.problem.name
        seen.append(name)
        if name in errors:
            raise errors[name]
        outcome: Outcome = yield from real(self, *arguments)
        return outcome  # type: ignore[return-value]  # a generator's, which StopIteration carries

    monkeypatch.setattr(Session, "attempts", attempts)
    return seen


def states(session: SuiteSession, workers: int = 1) -> dict[str, str]:
    found = {result.name: result.state for result in session.work(workers=workers)}
    assert [result.name for result in session.results] == [task.name for task in session.folder.header.tasks]
    return found


BREAKING: dict[str, tuple[Exception, str]] = {
    "evaluator": (EvaluationError("the referee died"), "evaluator: the referee died"),
    "model": (ProviderError("out of\ncredit"), "model: out of credit"),
    "run": (RunError("run b is damaged"), "run: run b is damaged"),
    "us": (ZeroDivisionError("division by zero"), "kforge: ZeroDivisionError: division by zero"),
}
"""What can go wrong with a problem of this name, and how it is told."""


def test_those_that_break_stop_nobody_and_are_tried_again(
    begin: Callable[..., SuiteSession], chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", *sorted(BREAKING), "z"]
    with monkeypatch.context() as patch:
        breaking(patch, {name: error for name, (error, _) in BREAKING.items()})
        session = begin(names)
        assert states(session, workers=3) == {name: "broken" if name in BREAKING else "no_attempt" for name in names}
    folder = SuiteFolder.open(session.folder.path)
    reasons = {result.name: result.reason for result in results_of(folder) if result.state == "broken"}
    assert reasons == {name: said for name, (_, said) in BREAKING.items()}
    logged = [task.name for task in folder.header.tasks if getattr(folder.breakdown_of(task), "log", "")]
    assert logged == ["us"], "only where we are to blame the traceback helps"

    worked_on = breaking(monkeypatch, {})
    assert states(SuiteSession(folder, chosen), workers=2) == dict.fromkeys(names, "no_attempt")
    assert sorted(worked_on) == sorted(BREAKING), "what was finished was repeated"
    assert not any(map(folder.breakdown_of, folder.header.tasks))


def test_a_problem_that_hangs_is_broken_after_a_deadline(
    begin: Callable[..., SuiteSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_judge, "DESCRIBE_DEADLINE", 3.0)
    monkeypatch.setitem(globals(), "PROBLEM", PROBLEM.replace("return x + 1", "while True: pass"))
    (found,) = begin(["only"]).work(workers=2)
    assert (found.state, found.reason) == (
        "broken", "problem: only: the reference was not ready after 3 s; it may never return",
    )  # fmt: skip


def test_a_module_returned_unchanged_is_a_state_of_its_own(begin: Callable[..., SuiteSession]) -> None:
    (found,) = begin(["only"], model="builtin", analyst="builtin", compile_baseline=False).work()
    assert (found.state, found.is_done, found.is_correct) == ("no_kernel", True, False)
    assert found.reason == "the built-in generator has no kernel language for platform null"
    metrics = summarize([found], ["eager"])
    assert (metrics.correct, metrics.gains["eager"].faster, metrics.gains["eager"].geometric_mean) == (0.0, 0, 1.0)


def test_one_that_waits_lets_the_others_go_on(
    begin: Callable[..., SuiteSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, {"b": WaitingForReplies(("abc",))})
    session = begin()
    assert states(session) == {"one/a": "no_attempt", "one/b": "waiting", "two/c": "no_attempt"}
    assert session.folder.status() == "interrupted"


@pytest.mark.parametrize(
    ("error", "workers"), [(ModelError("no such model"), 1), (InputError("no sandbox works here"), 2)]
)
def test_what_would_stop_all_of_them_stops_the_suite(
    begin: Callable[..., SuiteSession], monkeypatch: pytest.MonkeyPatch, error: InputError, workers: int
) -> None:
    breaking(monkeypatch, {"b": error})
    session = begin()
    with pytest.raises(InputError, match=str(error)):
        states(session, workers)
    assert session.folder.path.is_dir(), "what was finished before is kept"


def test_a_suite_that_can_never_begin_leaves_nothing_behind(begin: Callable[..., SuiteSession]) -> None:
    session = begin(model="clever")
    with pytest.raises(ModelError, match="unknown model 'clever'"):
        states(session)
    assert not session.folder.path.exists()


def test_an_edited_or_deleted_file_does_not_change_a_suite_that_has_begun(
    begin: Callable[..., SuiteSession], tmp_path: Path
) -> None:
    session = begin(["deleted", "edited"])
    (tmp_path / "suite" / "deleted.py").unlink()
    (tmp_path / "suite" / "edited.py").write_text("")
    assert states(session) == dict.fromkeys(["deleted", "edited"], "no_attempt")


def test_two_processes_do_not_work_on_one_suite(begin: Callable[..., SuiteSession], chosen: Settings) -> None:
    session = begin()
    with session.folder.writing():
        assert session.folder.status() == "running"
        other = SuiteSession(SuiteFolder.open(session.folder.path), chosen)
        with pytest.raises(RunError, match="is in use by process"):
            states(other)


def test_a_damaged_run_is_told_as_such(begin: Callable[..., SuiteSession]) -> None:
    session = begin(["only"])
    states(session)
    task = session.folder.header.tasks[0]
    run = session.folder.run_of(task)
    assert isinstance(run, RunFolder)
    (run.path / "result.json").write_text("{")
    assert result_of(session.folder, task).state == "unfinished"  # nobody signed that
    (run.path / "run.json").write_text('{"format": 1}')
    found = result_of(session.folder, task)
    assert (found.state, "is damaged" in str(found.reason)) == ("broken", True)
