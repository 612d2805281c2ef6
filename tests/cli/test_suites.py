"""`suite`, end to end: real processes, real evaluations, a model that reads its answers from files."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kforge.cli import suites
from kforge.metrics import Gain, Metrics
from kforge.problems.live.exporting import quiet
from kforge.suite import ProblemResult
from kforge.suite.worker import SuiteWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Answers
    from tests.conftest import RunKforge

    from kforge.problems import Task

QUICK = ("-p", "null", "--no-compile-baseline", "--replications", "0")


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """Two problems that a model can do, one that does not run and one that is no Python."""
    source = tiny.read_text()
    suite = tmp_path / "ours"
    for name in ("one/a.py", "one/b.py"):
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / name).write_text(source)
    (suite / "two").mkdir()
    (suite / "two" / "raises.py").write_text(source.replace("x + self.shift", "x @ torch.ones(3)"))
    (suite / "two" / "torn.py").write_text("def (\n")
    return suite


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_a_suite_from_beginning_to_end(
    kforge: RunKforge, kforge_in_process: RunKforge, folder: Path, script: Callable[..., str], answers: Answers
) -> None:
    model = script(answers.wrong, answers.slow, answers.advice, answers.fast)
    ran = kforge("suite", folder, *QUICK, "-m", model, "-n", "2", "--json")
    assert ran.status == 1, ran.stderr
    document = json.loads(ran.stdout)
    problems = {problem["name"]: problem for problem in document["problems"]}
    assert {name: problem["state"] for name, problem in problems.items()} == {
        "one/a": "correct", "one/b": "correct", "two/raises": "broken", "two/torn": "broken",
    }  # fmt: skip
    assert problems["two/raises"]["reason"].startswith("problem: raises: forward fails: RuntimeError")
    assert "torn.py: is not valid Python: line 1" in problems["two/torn"]["reason"]
    best = Path(problems["one/a"]["best"]["path"])
    assert best.read_text() == (Path(problems["one/a"]["run"]) / "attempts" / "001" / "candidate.py").read_text()
    overall = document["metrics"]["all"]
    assert (overall["problems"], overall["states"], overall["correct"]) == (4, {"correct": 2, "broken": 2}, 0.5)
    gain = overall["gains"]["eager"]
    assert (gain["faster"], gain["measured"] + gain["not_measured"]) == (0, 4)
    both_disturbed = gain["not_measured"] == 2
    assert ("share" in gain, "geometric_mean" in gain) == (not both_disturbed, not both_disturbed)
    assert {name: found["done"] for name, found in document["metrics"]["families"].items()} == {"one": 2, "two": 2}

    told = [line.partition("] ")[2] for line in ran.stderr.splitlines()]
    assert told[0] == f"ours on null with {model} → {document['run']}"
    assert told[1] == "  1/4 one/a: starting the evaluator", "the first problem is named at once"
    results = [line for line in told[2:] if not line.startswith("  still ")]  # said now and then on a slow machine
    assert [line.split(",")[0] for line in results] == [
        f"{number}/4 {name}: {problem['state']}" for number, (name, problem) in enumerate(problems.items(), 1)
    ]
    assert "· 2 correct, 0 faster than eager" in told[-1]
    assert told[-1].endswith(", 2 broken")

    before = tree(Path(document["run"]))
    again = kforge_in_process("resume", document["run"], "--json")
    assert (again.status, json.loads(again.stdout)) == (1, document)
    rewritten = {name for name, content in tree(Path(document["run"])).items() if content != before.get(name)}
    assert rewritten <= {"lock", "problems/two/raises/broken.json"}, "something finished was repeated"

    shown = kforge_in_process("show", Path(document["run"]).name)
    assert (shown.status, shown.stderr) == (0, "")
    assert "one/a: correct, " in shown.stdout
    assert f"suite: {document['run']}" in shown.stdout
    assert json.loads(kforge_in_process("show", document["run"], "--json").stdout) == document
    listed = kforge_in_process("runs")
    assert f"suite ours on null with {model}, " in listed.stdout
    assert "finished, 4 of 4 problems done" in listed.stdout
    assert json.loads(kforge_in_process("runs", "--json").stdout) == []


def test_each_of_many_problems_that_end_at_once_gets_one_line(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_at_once(worker: SuiteWorker, task: Task, watch: Callable[[Task, str], None]) -> ProblemResult:
        watch(task, "tracing")
        with quiet():  # as the smith traces, while another thread prints the lines
            time.sleep(0.001)
        return ProblemResult(name=task.name, family=task.family, state="correct")

    monkeypatch.setattr(SuiteWorker, "carry_out", end_at_once)
    (tmp_path / "many" / "one").mkdir(parents=True)
    count = 60
    for number in range(count):
        shutil.copy(tiny, tmp_path / "many" / "one" / f"p{number}.py")
    ran = kforge_in_process("suite", "many", *QUICK, "-m", "exchange", "--workers", "4")
    assert ran.status == 0, ran.stderr
    told = [line.partition("] ")[2] for line in ran.stderr.splitlines()]
    results = [line.partition(": ")[0] for line in told if re.match(r"\d+/60 ", line)]
    assert [line.partition(" ")[0] for line in results] == [f"{number}/{count}" for number in range(1, count + 1)]
    assert {line.partition(" ")[2] for line in results} == {f"one/p{number}" for number in range(count)}
    begun = [line for line in told if line.startswith("  1/60 one/p")]
    assert (len(begun), told.index(begun[0]), begun[0].endswith(": tracing")) == (1, 1, True), "only the first is told"


def wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "it ended too early"
        time.sleep(0.005)


@pytest.mark.slow
def test_a_suite_with_two_workers_that_is_killed_and_interrupted_goes_on_and_repeats_nothing(
    clean_environment: dict[str, str],
    kforge_in_process: RunKforge,
    folder: Path,
    script: Callable[..., str],
    answers: Answers,
) -> None:
    for name in ("c", "d", "e"):
        shutil.copy(folder / "one" / "a.py", folder / "one" / f"{name}.py")
    model = script(answers.wrong, answers.fast)
    place = folder.parent

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "kforge", *arguments],
            cwd=place,
            env=clean_environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # a shell lets what it starts in the background ignore interrupts
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    with start("suite", str(folder), *QUICK, "-m", model, "-n", "2", "--only", "one/*", "--workers", "2") as process:
        wait_until(lambda: list(place.glob("kforge-runs/*/problems/one/*/*/result.json")), process)
        process.kill()
    (suite,) = (place / "kforge-runs").glob("*suite-ours*")
    begun = json.loads(kforge_in_process("show", suite, "--json").stdout)
    assert begun["status"] == "interrupted"
    finished = [each["name"] for each in begun["problems"] if each["state"] == "correct"]
    assert 1 <= len(finished) < 5
    after_kill = {name: tree(suite / "problems" / name) for name in finished}
    (place / "moved").mkdir()
    suite = suite.rename(place / "moved" / suite.name)
    records = {path: path.read_bytes() for path in suite.rglob("attempts/*/*.json")}

    with start("resume", str(suite), "--workers", "2") as process:
        wait_until(lambda: set(suite.rglob("attempts/*/*.json")) - set(records), process)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == f"kforge: interrupted; to go on: kforge resume {suite}"
    assert not list(suite.rglob("broken.json")), "a problem that was interrupted is not broken"

    ran = kforge_in_process("suite", "--resume", suite.name, "-o", place / "moved", "--workers", "2", "--json")
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert [problem["name"] for problem in document["problems"]] == [f"one/{name}" for name in "abcde"]
    assert [(problem["state"], problem["attempts"]) for problem in document["problems"]] == [("correct", 2)] * 5
    assert {name: tree(suite / "problems" / name) for name in finished} == after_kill, "a finished problem was repeated"
    assert {path: path.read_bytes() for path in records} == records, "a finished stage was repeated"
    assert all(len(list((suite / "problems" / "one" / name).iterdir())) == 1 for name in "abcde"), (
        "a run was begun twice"
    )


@pytest.mark.slow
def test_a_suite_in_which_a_person_answers(
    kforge_in_process: RunKforge, folder: Path, answers: Answers, tmp_path: Path
) -> None:
    ran = kforge_in_process("suite", folder, *QUICK, "-m", "exchange", "-n", "1", "--only", "one/*", "--json")
    assert ran.status == 75, ran.stderr
    document = json.loads(ran.stdout)
    assert [problem["state"] for problem in document["problems"]] == ["waiting", "waiting"]
    assert ran.stderr.splitlines()[-1].endswith(f"then: kforge resume {document['run']}")
    for prompt in Path(document["run"]).rglob("*.prompt.md"):
        prompt.with_name(prompt.name.replace(".prompt.", ".reply.")).write_text(answers.fast)
    ran = kforge_in_process("resume", document["run"])
    assert ran.status == 0, ran.stderr
    assert "states: 2 correct" in ran.stdout


def test_the_table_of_a_whole_suite_fits_eighty_columns(tmp_path: Path) -> None:
    def gain(**more: float) -> Gain:
        return Gain.model_validate({"faster": 9, "measured": 130, "not_measured": 0} | more)

    def metrics(found: Gain) -> Metrics:
        return Metrics(problems=137, done=137, states={}, correct=1.0, gains={"eager": found, "compile": found})

    families = {
        "convolution_tail": metrics(gain(share=0.77, geometric_mean=11.91, not_measured=7)),
        "reductions": metrics(gain(share=1.0, geometric_mean=1.91)),
        "norms": metrics(gain(not_measured=137)),
    }
    table = suites.table("core on cpu", families["reductions"], families, ("eager", "compile"))
    console = Console(width=80, file=io.StringIO())
    console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    for whole in ("convolution_tail", "torch.compile,", "77% of 130,", "11.91x", "100%, 1.91x", "not measured"):
        assert whole in shown, shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gone",), "gone: no such file or directory, and no suite of this name; there are: core"),
        ((), "give a folder, the name of a suite, or --resume"),
        (("core", "--resume", "x"), "give a folder, the name of a suite, or --resume"),
        (("--resume", "gone"), "no suite 'gone' in "),
        (("--resume", "gone", "-o", "elsewhere"), "no suite 'gone' in elsewhere; "),
        (("core", "--workload", "huge"), "suite core: no workload 'huge'; there are: small, large, held_out"),
        (("core", "--only", "nothing/*"), "suite core: no problem matches 'nothing/*'"),
        (("ours", "--workload", "large"), "ours: has no suite.toml"),
        (("ours", "-m", "clever"), "unknown model 'clever'; a model is "),
        (("ours", "-p", "abacus"), "no platform named 'abacus'"),
        (("ours", "-n", "0"), "'-n' / '--iterations'"),
        (("empty",), "empty: no problem files here"),
    ],
)
def test_bad_input_is_one_line(
    kforge_in_process: RunKforge, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    (folder.parent / "empty").mkdir()
    missing = [(option, value) for option, value in (("-p", "null"), ("-m", "exchange")) if option not in arguments]
    ran = kforge_in_process("suite", *arguments, *chain.from_iterable(missing))
    assert (ran.status, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("kforge: ")
    assert said in line
    assert not list((folder.parent / "kforge-runs").glob("*")), "a suite was begun that can never work"
