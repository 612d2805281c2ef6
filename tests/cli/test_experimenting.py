"""`experiment`: two arms with real evaluations, begun, gone on with, and compared; and how a comparison is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kforge.cli.results.experimenting import spent, told
from kforge.metrics import Cost, Estimate, PairedTest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Answers
    from tests.conftest import RunKforge


@pytest.fixture
def trial(tiny: Path, tmp_path: Path, script: Callable[..., str], answers: Answers) -> Path:
    """An experiment with a model that is right at once, and one that is never right."""
    (tmp_path / "suite" / "family").mkdir(parents=True)
    (tmp_path / "suite" / "family" / "a.py").write_text(tiny.read_text())
    for name, answer in (("right", answers.fast), ("wrong", answers.wrong)):
        (tmp_path / f"{name}.json").write_text(json.dumps([answer]))
    file = tmp_path / "trial.toml"
    file.write_text(
        'name = "trial"\nquestion = "Does being right help?"\nsuite = "suite"\nmeasures = ["correct", "speedup"]\n'
        "[options]\niterations = 1\ncompile_baseline = false\nreplications = 0\n"
        '[arms.wrong]\nmodel = "scripted:wrong.json"\n[arms.right]\nmodel = "scripted:right.json"\n'
    )
    return file


def test_an_experiment_is_run_and_compared_and_repeats_nothing(kforge_in_process: RunKforge, trial: Path) -> None:
    ran = kforge_in_process("experiment", trial, "-p", "null", "-o", "out", "--json")
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["status"], document["platform"], document["suite"]) == ("finished", "null", "suite")
    assert {arm["name"]: arm["problems"] for arm in document["arms"]} == {
        "wrong": {"family/a": "mismatch"},
        "right": {"family/a": "correct"},
    }
    (comparison,) = document["comparisons"]
    correct = comparison["tests"][0]
    assert (comparison["base"], comparison["other"], correct["measure"]) == ("wrong", "right", "correct")
    assert (correct["pairs"], correct["differ"], correct["finding"]) == (1, 1, "no difference shown")

    again = kforge_in_process("experiment", trial, "-p", "null", "-o", "out")
    assert again.status == 0, again.stderr
    assert "Does being right help?" in again.stdout
    assert "right: correct 0% → 100%, +100 points (+100 to +100), 1 pairs, p = 1: no difference shown" in again.stdout
    assert "wrong: 0 tokens, $0.00, " in again.stdout
    assert f"experiment: {document['folder']}" in again.stdout
    runs = list((trial.parent / "out").glob("experiment-trial-*/arms/*/1/*/problems/family/a/*/run.json"))
    assert len(runs) == 2, "finished problems were repeated"


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("name = ", (), "is not valid TOML"),
        ("colour = 1", (), "there is no key 'colour'"),
        (None, ("-p", "abacus"), "no platform named 'abacus'"),
        (None, ("-p", "null", "--only", "zebra"), "no problem matches 'zebra'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    kforge_in_process: RunKforge, trial: Path, text: str | None, arguments: tuple[str, ...], said: str
) -> None:
    if text is not None:
        trial.write_text(f"{text}\n{trial.read_text()}")
    ran = kforge_in_process("experiment", trial, *arguments, "-o", "out")
    assert (ran.status, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (trial.parent / "out").exists()


def test_an_unknown_model_of_an_arm_is_found_before_anything_begins(kforge_in_process: RunKforge, trial: Path) -> None:
    trial.write_text(trial.read_text().replace("scripted:right.json", "clever"))
    ran = kforge_in_process("experiment", trial, "-p", "null", "-o", "out")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "arm right: unknown model 'clever'" in ran.stderr
    assert not (trial.parent / "out").exists()


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high)


TOLD = {
    "speedup 1.50x → 3.00x, ratio 2.00 (1.80 to 2.20), 12 pairs, 3 unknown, p = 0.001: better": PairedTest(
        measure="speedup", pairs=12, unknown=3, differ=12, base=1.5, other=3.0,
        difference=estimate(2.0, 1.8, 2.2), p_value=0.0005, adjusted=0.001, needed=7,
    ),
    "correct 90% → 70%, -20 points (-40 to +0), 30 pairs, p = 0.12: no difference shown": PairedTest(
        measure="correct", pairs=30, unknown=0, differ=8, base=0.9, other=0.7,
        difference=estimate(-0.2, -0.4, 0.0), p_value=0.06, adjusted=0.12, needed=7,
    ),
    "tokens 1,200.0 → 900.0, -300.0 (-400.0 to -200.0), 10 pairs, p = 0.01: better": PairedTest(
        measure="tokens", pairs=10, unknown=0, differ=10, base=1200, other=900,
        difference=estimate(-300, -400, -200), p_value=0.01, adjusted=0.01, needed=6,
    ),
    "correct 50% → 100%, +50 points (+0 to +100), 2 pairs, p = 1: no difference shown (1 of 2 pairs differ, and fewer "
    "than 6 can show nothing)": PairedTest(
        measure="correct", pairs=2, unknown=0, differ=1, base=0.5, other=1.0,
        difference=estimate(0.5, 0.0, 1.0), needed=6,
    ),
    "speedup: no problem was measured in both arms, 4 unknown: no difference shown": PairedTest(
        measure="speedup", pairs=0, unknown=4, differ=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", TOLD)
def test_a_comparison_says_plainly_whether_a_difference_is_shown(words: str) -> None:
    assert told(TOLD[words]) == words


def test_a_cost_says_which_prices_are_not_known() -> None:
    cost = Cost(problems=4, solved=2, tokens=1500, usd=1.25, unpriced=0, device_seconds=80.0, seconds=90.0)
    assert spent(cost) == "1,500 tokens, $1.25, 80 device-seconds, 40 device-seconds for each of 2 solved problems"
    unknown = cost.model_copy(update={"usd": None, "unpriced": 3, "solved": 0})
    assert spent(unknown) == "1,500 tokens, price not known, 80 device-seconds"
    assert "$1.25 and 3 calls without a price" in spent(cost.model_copy(update={"unpriced": 3}))
