"""Bad input of every kind: one clear line on standard error, no traceback, nothing on standard output, status 2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kforge import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Ran, RunKforge


@pytest.fixture
def kforge(kforge_in_process: RunKforge) -> RunKforge:
    return kforge_in_process


def complaint(ran: Ran) -> str:
    """The one line that a user sees, without the program's name."""
    assert ran.status == 2, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.endswith("\n")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("kforge: ")
    return line.removeprefix("kforge: ")


# --- problems: what reading shows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# caf\xe9\n", "is not UTF-8 text"),
        (b"def get_inputs(:\n", "is not valid Python: line 1"),
        (b"", "does not define Model or get_inputs or get_init_inputs"),
        (b"def get_inputs(): ...\ndef get_init_inputs(): ...\n", "does not define Model at module level"),
        (b"class Model: ...\ndef get_init_inputs(): ...\n", "does not define get_inputs at module level"),
        (b"class Model: ...\ndef get_inputs(): ...\n", "does not define get_init_inputs at module level"),
    ],
)
def test_a_file_that_is_no_problem(kforge: RunKforge, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    assert complaint(kforge("eval", "bad.py", "candidate.py", "-p", "null")).startswith("bad.py: " + said)


@pytest.mark.parametrize(
    ("command", "more"),
    [("eval", ["candidate.py"]), ("profile", ["candidate.py"]), ("forge", ["-m", "exchange"])],
)
def test_a_problem_that_is_no_file(kforge: RunKforge, tmp_path: Path, command: str, more: list[str]) -> None:
    assert complaint(kforge(command, "gone.py", *more, "-p", "null")) == "gone.py: no such file"
    (tmp_path / "folder").mkdir()
    assert complaint(kforge(command, "folder", *more, "-p", "null")).startswith("folder: is not a file")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("COLUMNS=3", "has no module-level constant COLUMNS; those that can be set: ROWS"),
        ("ROWS=three", "ROWS=three: the value is not a Python literal"),
        ("ROWS", "override 'ROWS' is not of the form NAME=VALUE"),
    ],
)
def test_an_override_that_cannot_be(kforge: RunKforge, tiny: Path, override: str, said: str) -> None:
    assert said in complaint(kforge("forge", tiny, "-p", "null", "-m", "exchange", "--set", override))


# --- problems: what running shows -------------------------------------------------------------------------

MODEL = "import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def forward(self, x): return {result}\n"
INPUTS = "def get_inputs(): return [torch.ones(2)]\ndef get_init_inputs(): return []\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            MODEL.format(result="x") + INPUTS + "1 / 0\n",
            "does not import: ZeroDivisionError: division by zero (line 7)",
        ),
        ("import no_such_package\n" + MODEL.format(result="x") + INPUTS, "needs the package 'no_such_package'"),
        (MODEL.format(result="x") + INPUTS.replace("torch.ones(2)", "2"), "get_inputs() returns no tensors"),
        (MODEL.format(result="x @ torch.ones(3)") + INPUTS, "forward fails: RuntimeError: "),
    ],
    ids=["raises at import", "missing package", "no tensors", "forward fails"],
)
def test_a_problem_that_does_not_run(kforge: RunKforge, tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    ran = kforge("forge", "bad.py", "-p", "null", "-m", "exchange")
    begun, _, rest = ran.stderr.partition("\n")
    assert re.fullmatch(r"\[ *\d\.\d s\] bad on null with exchange: \w.*", begun), "a log is not empty meanwhile"
    error = "".join(line for line in rest.splitlines(keepends=True) if "]   still " not in line)
    assert complaint(ran._replace(stderr=error)).startswith("bad: " + said)
    assert not (tmp_path / "kforge-runs").exists(), "a run was begun that can never work"


# --- candidates -------------------------------------------------------------------------------------------


def test_a_candidate_that_cannot_be_read(kforge: RunKforge, tiny: Path, tmp_path: Path) -> None:
    for command in ("eval", "profile"):
        assert complaint(kforge(command, tiny, "gone.py", "-p", "null")) == (
            "cannot read gone.py: No such file or directory"
        )
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    assert complaint(kforge("eval", tiny, "latin.py", "-p", "null")) == "cannot read latin.py: it is not UTF-8 text"


def test_a_candidate_that_cannot_be_profiled(
    kforge: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[[str], str]
) -> None:
    (tmp_path / "raises.py").write_text(candidate("x.no_such_method()"))
    ran = kforge("profile", tiny, "raises.py", "-p", "null")
    assert (ran.status, ran.stdout) == (2, "")  # no verdict: `profile` judges nothing
    assert "kforge: the program cannot be profiled: runtime error: AttributeError" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


# --- platforms --------------------------------------------------------------------------------------------

MANIFEST = """\
name = "abacus"
title = "an abacus"
language = "beads"
fence = ["python"]
device = "cpu"
facts = ["Programs are moved by hand."]
"""


@pytest.fixture
def abacus(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a platform folder with this manifest."""

    def make(manifest: str) -> Path:
        (tmp_path / "abacus" / "example").mkdir(parents=True)
        for name in ("reference.py", "kernel.py"):
            (tmp_path / "abacus" / "example" / name).write_text("")
        (tmp_path / "abacus" / "platform.toml").write_text(manifest)
        return tmp_path / "abacus"

    return make


def test_an_unknown_platform(kforge: RunKforge, tiny: Path) -> None:
    for arguments in (("eval", tiny, "candidate.py", "-p"), ("forge", tiny, "-m", "exchange", "-p"), ("doctor",)):
        said = complaint(kforge(*arguments, "abacus"))
        assert said.startswith("no platform named 'abacus'; there are: ")
        assert "null" in said


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("name = ", "is not valid TOML"),
        (MANIFEST + "colour = 'red'\n", "field 'colour' is not known"),
        (MANIFEST.replace("device", "# device"), "field 'device' is missing"),
    ],
)
def test_a_bad_manifest(kforge: RunKforge, tiny: Path, abacus: Callable[[str], Path], manifest: str, said: str) -> None:
    folder = abacus(manifest)
    assert said in complaint(kforge("eval", tiny, "candidate.py", "-p", "abacus", "--platform-dir", folder))


def test_a_platform_that_is_not_available(kforge: RunKforge, tiny: Path, abacus: Callable[[str], Path]) -> None:
    tool = '[[toolchain]]\ncommands = ["no-such-compiler"]\npurpose = "to move beads"\n'
    folder = abacus(MANIFEST + tool)
    for arguments in (("eval", tiny, "candidate.py"), ("forge", tiny, "-m", "exchange")):
        assert complaint(kforge(*arguments, "-p", "abacus", "--platform-dir", folder)) == (
            "platform abacus is not available here: no no-such-compiler on PATH (to move beads)"
        )


def test_a_platform_folder_that_is_not_there(kforge: RunKforge, tiny: Path) -> None:
    assert "no such platform folder: gone" in complaint(kforge("eval", tiny, "c.py", "--platform-dir", "gone"))


# --- models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (("-m", "clever"), "unknown model 'clever'; a model is "),
        (("-m", "clever:one"), "unknown model 'clever:one': there is no provider 'clever'"),
        (("-m", "exchange", "--analyst", "clever"), "unknown model 'clever'; a model is "),
        (("-m", "replay:gone"), "replay: there is no recorded exchange at gone"),
        (("-m", "scripted:gone"), "scripted: cannot read gone: "),
        (("-m", "openai:gpt-5"), "OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_used(
    kforge: RunKforge, tiny: Path, tmp_path: Path, model: tuple[str, ...], said: str
) -> None:
    assert said in complaint(kforge("forge", tiny, "-p", "null", *model))
    assert not (tmp_path / "kforge-runs").exists()


# --- usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("frog",), "No such command 'frog'"),
        (("forge",), "Missing argument 'problem'"),
        (("forge", "p.py", "--faster"), "No such option: --faster"),
        (("forge", "p.py", "-n", "0"), "'-n' / '--iterations': must be at least 1, not '0'"),
        (("forge", "p.py", "-n", "many"), "'-n' / '--iterations': must be a whole number, not 'many'"),
        (("forge", "p.py", "--precision", "foo"), "'--precision': 'foo' is not one of 'strict', 'tf32', 'half'."),
        (("forge", "p.py", "--budget-usd", "nan"), "'--budget-usd': must be at least 0, not 'nan'"),
        (("forge", "p.py", "--model-settings", "temperature=9"), "'temperature': must be at most 2, not '9'"),
        (("forge", "p.py", "-p", "null", "-m", "exchange", "-n", "9" * 23), "option iterations: it must be a count"),
        (("forge", "p.py", "-p", "null", "-m", "exchange", "--replications", "9" * 23), "option replications: it must"),
        (("forge", "p.py", "-p", "null", "-m", "exchange", "--budget-minutes", "1e200"), "option budget_minutes: it"),
        *(
            (("forge", "p.py", "-p", "null", "-m", "exchange", "--search", search), said)
            for search, said in {
                "deep": "option search: unknown search 'deep'; choose linear, best-of:N, beam:K or tree",
                "beam:0": "option search: the number in beam:N must be between 1 and 16, not '0'",
            }.items()
        ),
        (
            ("forge", "p.py", "-p", "null", "-m", "exchange", "--model-settings", "efort=1"),
            "option model_settings: 'efort=1' is",
        ),
        (("forge", "p.py", "--budget-tokens", "-1"), "'--budget-tokens'"),
        (("forge", "p.py", "-p", "null", "-m", "exchange,exchange"), "option model: the ensemble names exchange twice"),
        (
            ("forge", "p.py", "-p", "null", "-m", "exchange,replay:a", "-n", "1"),
            "option model: 1 iterations are too few for 2 first programs",
        ),
        (
            ("forge", "p.py", "-p", "null", "-m", "exchange,replay:a", "--seed", "smith"),
            "option model: an ensemble gets the smith's program by naming builtin",
        ),
        (("eval", "p.py", "c.py", "-p", "null", "--memory", "99999999999999999999TB"), "--memory must be more than 0"),
        (("forge", "p.py", "--target-speedup", "-1"), "'--target-speedup'"),
        (("forge", "p.py", "--target-speedup", "inf"), "'--target-speedup'"),
        (("forge", "p.py", "--budget-usd", "nan"), "'--budget-usd'"),
        (("forge", "p.py", "--budget-minutes", "inf"), "'--budget-minutes'"),
        (("forge", "p.py", "--precision", "sloppy"), "'sloppy' is not one of 'strict', 'tf32', 'half'"),
        (("eval", "p.py", "c.py", "--compile-mode", "fast"), "'fast' is not one of 'default', 'reduce-overhead'"),
        *(
            ((*command, "--no-compile-baseline", "--compile-mode", "max-autotune"), "--no-compile-baseline leaves out")
            for command in (("eval", "p.py", "c.py"), ("forge", "p.py"), ("suite", "core"))
        ),
        (("forge", "p.py", "-p", "null", "-m", "exchange", "--reference", "gone.py"), "there is no such file"),
        (("forge", "p.py", "--reference-platform", "null"), "a program that --reference names"),
        (("transfer", "gone", "--to", "null"), "no run 'gone' in"),
        (("transfer", "gone", "--to", " ,"), "--to names no platform"),
        (("resume",), "Missing argument 'run'"),
    ],
)
def test_wrong_usage(kforge: RunKforge, arguments: tuple[str, ...], said: str) -> None:
    assert said in complaint(kforge(*arguments))


def test_a_budget_in_dollars_needs_a_price(kforge: RunKforge, tiny: Path) -> None:
    ran = kforge("forge", tiny, "-p", "null", "-m", "exchange", "--budget-usd", "1")
    assert complaint(ran).startswith("--budget-usd cannot be kept: the price of exchange is not known; give it with ")


# --- runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["resume", "show"])
def test_a_run_that_is_none(kforge: RunKforge, tmp_path: Path, command: str) -> None:
    assert complaint(kforge(command, "20200101")).startswith("no run '20200101' in ")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    assert complaint(kforge(command, foreign)) == f"{foreign} is not a run: it has no run.json"
    (foreign / "run.json").write_text('{"format": 1, "id": "torn')
    assert complaint(kforge(command, foreign)).startswith(f"{foreign} is not a run: kforge cannot read its run.json")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[]", "is not a run: kforge cannot read its run.json"),
        (b"\xff\xfe", "is not a run: kforge cannot read its run.json"),
        (b'{"format": 1, "id": "x"}', "run.json is damaged: created: is missing"),
        (b'{"format": 99}', "was written by a newer kforge (format 99)"),
    ],
)
def test_a_damaged_run(kforge: RunKforge, tmp_path: Path, header: bytes, said: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes(header)
    assert said in complaint(kforge("show", "run"))


def test_a_failure_that_nobody_foresaw_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Cause: any exception that is none of kforge's own reached the terminal as a traceback."""

    def fail(*_: object, **__: object) -> int:
        raise TypeError("an odd\nfile")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("kforge.cli.inspecting.runs", fail)
    assert cli.run(["runs"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "kforge failed: TypeError: an odd file (traceback in " in said
    (log,) = (tmp_path / "state" / "kforge" / "failures").iterdir()
    assert log.name in said
    assert 'raise TypeError("an odd' in log.read_text()
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert cli.run(["runs"]) == 2
    assert "its traceback could not be kept" in capsys.readouterr().err


def test_a_receipt_that_cannot_be_written_is_refused_before_anything_is_measured(
    kforge: RunKforge, tmp_path: Path
) -> None:
    (tmp_path / "p.py").write_text("nothing is read of it")
    for receipt, said in (("no/r.json", "there is no folder"), (".", "it is a folder")):
        ran = kforge("eval", tmp_path / "p.py", tmp_path / "p.py", "-p", "null", "--receipt", tmp_path / receipt)
        assert complaint(ran).startswith(f"cannot write the receipt {tmp_path / receipt}: {said}")
