"""`forge` and `resume`, end to end: real processes, real evaluations, a model that reads its answers from files."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kforge import platforms, settings
from kforge.cli import forging
from kforge.cli.options import Growth, Material, Seed, Target
from kforge.models.exchange import Exchange
from kforge.records import EvaluationPolicy
from kforge.store import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Answers, Forged
    from tests.conftest import RunKforge

QUICK = ("-p", "null", "--no-compile-baseline", "--replications", "0")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def states(document: dict[str, Any]) -> list[str]:
    return [attempt["state"] for attempt in document["attempts"]]


# --- a whole run ------------------------------------------------------------------------------------------


def test_from_a_failure_over_repairs_to_an_optimization(forged: Forged) -> None:
    document = forged.document
    assert states(document) == ["generation_failure", "mismatch", "correct", "correct"]
    assert [(a["phase"], a.get("parent")) for a in document["attempts"]] == [
        ("functional", None), ("functional", 0), ("functional", 1), ("optimization", 2),
    ]  # fmt: skip
    assert [a["recommendation"]["action"] for a in document["attempts"] if "recommendation" in a] == ["do not wait"]
    assert (document["stopped"], document["status"]) == ("4 iterations done", "finished")
    assert document["usage"] == {"requests": 6, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
    total = {"calls": 6, **document["usage"]}
    assert {**document["ledger"]["total"], "seconds": 0} == {**total, "seconds": 0}
    assert {name: each["calls"] for name, each in document["ledger"]["agents"].items()} == {
        "generation": 5,
        "analysis": 1,
    }
    assert [call["step"] for call in document["ledger"]["calls"]] == [0, 0, 1, 2, 3, 3]
    assert [row.get("best") for row in document["progress"]] == [None, None, 2, 3]
    assert [row["usage"]["requests"] for row in document["progress"]] == [2, 3, 4, 6]
    assert document["best"]["attempt"] == 3
    assert document["best"]["state"] == "correct"
    assert document["best"]["receipt"]["platform"] == "null"
    assert document["disproved"] == []
    assert [each["state"] for each in document["replication"]] == ["correct"] * 3
    leading, chosen = document["best"]["speedup"]["eager"], document["best"]["chosen_by"]
    assert leading == document["replicated"][0]["speedup"], "what had no part in the choice leads"
    assert chosen["speedup"] == document["attempts"][3]["speedup"]
    assert set(chosen) >= {"speedup", "findings", "seconds", "pairs", "baselines"}
    assert document["seconds"] > sum(attempt["seconds"] for attempt in document["attempts"])


def test_progress_is_told_line_by_line(forged: Forged) -> None:
    told = [line.partition("] ")[2] for line in forged.stderr.splitlines()]
    assert told[0] == "tiny on null with scripted:script.json: starting the evaluator", "said at once"
    (title,) = [line for line in told if "→" in line]
    assert title == f"tiny on null with scripted:script.json → {forged.folder}"
    attempts = [line for line in told if line.startswith("attempt ")]
    assert [line.split(": ")[:2] for line in attempts] == [
        ["attempt 0 functional", "generation failure"],
        ["attempt 1 functional", "mismatch"],
        ["attempt 2 functional", "correct"],
        ["attempt 3 optimization", "correct"],
    ]
    stages = [line.strip() for line in told if line.startswith("  ")]
    agents = {"asking the generation agent", "asking the performance analysis agent"}
    expected = {*agents, "timing against eager", "profiling"}
    assert expected <= set(stages)


def test_the_run_folder_holds_everything(forged: Forged) -> None:
    folder = forged.folder
    assert Path(forged.document["best"]["path"]) == folder / "best.py"
    assert (folder / "best.py").read_text() == (folder / "attempts" / "003" / "candidate.py").read_text()
    assert "relu_()" in (folder / "best.py").read_text()
    assert (folder / "problem.py").read_text() == (forged.root / "tiny.py").read_text()
    assert (folder / "attempts" / "002" / "profile.json").exists(), "the profile is with the program that it is of"
    names = sorted(p.name for p in (folder / "attempts" / "003").iterdir())
    assert [name for name in names if "_again" not in name] == [  # those are there if a quieter moment came
        "against_2.json", "against_2.signature",
        "attempt.json", "candidate.py", "evaluation.json", "evaluation.signature",
        "replication_1.json", "replication_1.signature", "replication_2.json", "replication_2.signature",
        "replication_3.json", "replication_3.signature", "sanitization.json", "sanitization.signature", "signature",
    ]  # fmt: skip
    assert sorted(p.name for p in (folder / "attempts" / "000").iterdir()) == ["attempt.json", "signature"]
    asked = {each.request.identity for each in Exchange(folder / "exchange").questions()}
    answered = {request.identity for request, _ in Exchange(folder / "exchange").answered()}
    recorded = {identity for attempt in RunFolder.open(folder).attempts() for identity in attempt.requests}
    assert asked == answered == recorded
    assert len(recorded) == 6


def test_a_finished_run_is_not_gone_on_with(kforge_in_process: RunKforge, forged: Forged) -> None:
    before = tree(forged.folder)
    ran = kforge_in_process("resume", forged.folder.name, "--json", cwd=forged.root)
    assert ran.status == 0
    assert json.loads(ran.stdout) == forged.document
    assert tree(forged.folder) == before


def test_the_outcome_in_words(kforge_in_process: RunKforge, forged: Forged) -> None:
    ran = kforge_in_process("resume", forged.folder, cwd=forged.root)
    assert ran.status == 0
    said = ran.stdout.splitlines()
    assert said[-1] == f"run: {forged.folder}"
    assert f"kernel: {forged.folder / 'best.py'}" in said
    assert any(line.startswith("stopped: 4 iterations done; 6 model calls, 0 tokens, $0.0000; ") for line in said)
    best = next(number for number, line in enumerate(said) if line.startswith(("best: ", "no faster program")))
    assert "attempt 3, " in said[best]
    assert " over eager" in said[best + 1]
    assert said[best + 2].endswith((" a call", " a call seen"))
    assert "from 3 further evaluations by fresh processes" in said[best + 3]
    assert said[best + 4].startswith("  when it was chosen: ")


# --- how runs end -----------------------------------------------------------------------------------------


def test_a_model_that_answers_garbage(
    kforge_in_process: RunKforge, tiny: Path, script: Callable[..., str], answers: Answers
) -> None:
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", script(*[answers.no_program] * 6), "-n", "3", "--json")
    document = json.loads(ran.stdout)
    assert ran.status == 1
    assert states(document) == ["generation_failure"] * 3
    assert document["stopped"] == "3 iterations done"
    assert "best" not in document
    assert not (Path(document["run"]) / "best.py").exists()


def test_a_module_returned_unchanged_is_no_kernel_found(kforge_in_process: RunKforge, tiny: Path) -> None:
    reason = "the built-in generator has no kernel language for platform null"
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", "builtin")
    assert ran.status == 1
    assert f"no kernel found: {reason}" in ran.stdout.splitlines()
    assert "best" not in ran.stdout
    assert "kernel: " not in ran.stdout
    (run,) = json.loads(kforge_in_process("runs", "--json").stdout)
    assert "speedup" not in run
    shown = json.loads(kforge_in_process("show", run["id"], "--json").stdout)
    assert (shown["no_kernel"], shown["attempts"][0]["unchanged"]) == (reason, reason)
    assert "best" not in shown
    assert f"no kernel found: {reason}" in kforge_in_process("show", run["id"]).stdout.splitlines()


@pytest.mark.parametrize("found", [False, True])
def test_a_script_that_ends_early(
    kforge_in_process: RunKforge, tiny: Path, script: Callable[..., str], answers: Answers, *, found: bool
) -> None:
    model = script(answers.fast if found else answers.wrong)
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", model, "--json")
    document = json.loads(ran.stdout)
    assert ran.status == (0 if found else 1)
    assert states(document) == ["correct" if found else "mismatch"]
    assert document["stopped"] == f"{model} holds 1 replies, and all of them are used"
    assert ("best" in document) is found


@pytest.fixture
def waits(tiny: Path) -> Path:
    """A problem that most programs are faster than: it is busy for three milliseconds."""
    wait = "        end = time.perf_counter() + 0.003\n        while time.perf_counter() < end:\n            pass\n"
    source = tiny.read_text().replace("import torch\n", "import time\n\nimport torch\n", 1)
    tiny.write_text(source.replace("        return torch.relu", f"{wait}        return torch.relu"))
    return tiny


def test_the_target_speedup(
    kforge_in_process: RunKforge, waits: Path, script: Callable[..., str], answers: Answers
) -> None:
    faster = answers.slow.replace("0.03", "0.001")  # by less than what would be measured again
    assert faster != answers.slow
    model = script(faster, answers.advice, answers.slow)
    ran = kforge_in_process("forge", waits, *QUICK, "-m", model, "-n", "2", "--target-speedup", "1.5", "--json")
    document = json.loads(ran.stdout)
    assert ran.status == 0
    if "doubts" not in document["best"]:
        assert (states(document), document["stopped"]) == (["correct"], "target speedup 1.5 reached")


def test_a_best_program_that_is_slower_is_no_success(
    kforge_in_process: RunKforge, tiny: Path, script: Callable[..., str], answers: Answers
) -> None:
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", script(answers.slow), "-n", "1")
    slower = "no faster program found: the best correct one, attempt 0, is slower than eager" in ran.stdout
    assert slower or "not measured" in ran.stdout
    assert ran.status == (1 if slower else 0)


def test_a_run_that_has_spent_its_budget_goes_on_with_a_larger_one(
    kforge_in_process: RunKforge, tiny: Path, script: Callable[..., str], answers: Answers
) -> None:
    model = script(answers.wrong, answers.fast)
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", model, "-n", "2", "--budget-minutes", "0.0001", "--json")
    document = json.loads(ran.stdout)
    assert ran.status == 1
    assert (states(document), document["stopped"]) == ([], "budget spent: 0.0001 minutes are over")
    run = document["run"]
    told = kforge_in_process("show", run)
    assert f"to go on: kforge resume {run} and a larger --budget-…" in told.stdout.splitlines()

    refused = kforge_in_process("resume", run, "--budget-minutes", "0.00001")
    assert (refused.status, refused.stderr.splitlines()) == (
        2,
        ["kforge: --budget-minutes must be larger than before, 0.0001, not 1e-05"],
    )
    ended = json.loads(kforge_in_process("resume", run, "--budget-minutes", "60", "--json").stdout)
    assert (states(ended), ended["stopped"]) == (["mismatch", "correct"], "2 iterations done")
    again = kforge_in_process("resume", run, "--budget-minutes", "90")
    assert again.status == 2
    assert again.stderr.endswith("has ended, and not for its budget: 2 iterations done\n")
    assert json.loads(kforge_in_process("show", run, "--json").stdout).get("signed", True) is not False


def test_an_ensemble_grows_the_best_first_program_with_the_model_that_wrote_it(
    kforge_in_process: RunKforge, tiny: Path, answers: Answers
) -> None:
    scripts = {"one": [answers.wrong, answers.advice], "two": [answers.slow, answers.fast]}
    for name, texts in scripts.items():
        (tiny.parent / f"{name}.json").write_text(json.dumps(texts))
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", "scripted:one.json,scripted:two.json", "-n", "3", "--json")
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert states(document) == ["mismatch", "correct", "correct"]
    assert [attempt.get("parent") for attempt in document["attempts"]] == [None, None, 1]
    assert [(call["agent"], call["asked"]) for call in document["ledger"]["calls"]] == [
        ("generation", "scripted:one.json"),
        ("generation", "scripted:two.json"),
        ("analysis", "scripted:one.json"),
        ("generation", "scripted:two.json"),
    ]
    assert document["model"] == "scripted:one.json,scripted:two.json"


# --- the platform -----------------------------------------------------------------------------------------


def test_a_platform_that_the_brain_can_write_for_is_taken_and_said(
    clean_environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    favourite = tmp_path / "favourite"
    shutil.copytree(platforms.find("null").folder, favourite)
    manifest = (favourite / "platform.toml").read_text().replace('name = "null"', 'name = "favourite"\npreference = 99')
    (favourite / "platform.toml").write_text(manifest)

    def chosen(*, platform: str = "", model: str = "", seed: Seed | None = None) -> tuple[str, str]:
        user, target = settings.load(clean_environment), Target(platform, [favourite])
        options = forging.options(user, target, Growth(model=model), EvaluationPolicy(), Material(seed=seed))
        return options.platform, capsys.readouterr().err

    assert chosen(model="exchange") == ("favourite", "")
    assert chosen(platform="favourite") == ("favourite", "")
    for given in ({}, {"model": "builtin"}, {"model": "exchange", "seed": Seed.SMITH}):
        name, said = chosen(**given)
        assert name != "favourite"
        assert said.startswith(
            f"kforge: platform {name} is used: the built-in generator has no kernel language for favour"
        )


# --- runs that wait, are carried away or are interrupted --------------------------------------------------


def test_a_person_answers_and_the_run_goes_on_elsewhere(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, answers: Answers
) -> None:
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", "exchange", "-n", "1", "--json")
    assert ran.status == 75
    document = json.loads(ran.stdout)
    assert (document["attempts"], document["status"]) == ([], "interrupted")
    (prompt,) = map(Path, document["waiting"])
    assert "class Model(nn.Module)" in prompt.read_text()
    answer = prompt.name.replace(".prompt.", ".reply.")
    assert ran.stderr.splitlines()[-2:] == [
        f"kforge: waiting for a reply: read {prompt}, write {answer} in the same folder,",
        f"kforge: and then run: kforge resume {document['run']}",
    ]

    assert kforge_in_process("resume", document["run"]).status == 75, "nobody has answered yet"

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = Path(document["run"]).rename(elsewhere / "carried")
    tiny.unlink()
    (moved / "exchange" / answer).write_text(answers.fast)
    ran = kforge_in_process("resume", moved, "--json", cwd=elsewhere)
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (states(document), document["stopped"]) == (["correct"], "1 iteration done")
    assert document["best"]["path"] == str(moved / "best.py")


def test_an_interrupt(
    clean_environment: dict[str, str],
    kforge: RunKforge,
    tiny: Path,
    tmp_path: Path,
    script: Callable[..., str],
    answers: Answers,
) -> None:
    model = script(answers.no_program, answers.no_program, answers.fast)
    arguments = ["forge", str(tiny), *QUICK, "-m", model, "-n", "2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "kforge", *arguments],
        cwd=tmp_path,
        env=clean_environment | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job ignores interrupts, and would pass that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not list(tmp_path.glob("kforge-runs/*/attempts/000/attempt.json")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    (run,) = (tmp_path / "kforge-runs").glob("*/")
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1] == f"kforge: interrupted; to go on: kforge resume {run}"
    assert "Traceback" not in stderr
    assert list(temporary.iterdir()) == [], "the judge left its work behind"
    assert json.loads(kforge("show", run, "--json").stdout)["status"] == "interrupted"

    ran = kforge("resume", run, "--json")
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (states(document), document["stopped"]) == (["generation_failure", "correct"], "2 iterations done")


# --- secrets ----------------------------------------------------------------------------------------------


def test_no_key_leaves_the_orchestrator(
    kforge: RunKforge, tiny: Path, tmp_path: Path, script: Callable[..., str], candidate: Callable[..., str]
) -> None:
    keys = {"OPENAI_API_KEY": "sk-secret-5f2d9c", "SOME_TOKEN": "token-secret-77aa01"}
    looks = "exec('raise RuntimeError(open(\"/proc/self/environ\").read() + repr(dict(os.environ)))')"
    model = script(f"```python\n{candidate(looks, 'import os')}```")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = kforge("forge", tiny, *QUICK, "-m", model, "-n", "1", "--json", environment=keys | cache)
    (attempt,) = json.loads(ran.stdout)["attempts"]
    assert attempt["state"] == "runtime_error"
    assert "OMP_NUM_THREADS" in attempt["log"], "the candidate did not see its environment"
    written = tree(tmp_path)
    assert any(name.endswith("attempt.json") for name in written)
    everything = [ran.stdout.encode(), ran.stderr.encode(), *written.values()]
    for secret in keys.values():
        assert not any(secret.encode() in content for content in everything)
