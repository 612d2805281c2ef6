"""What a candidate, a problem or a file's name says is shown and not obeyed. (cause: orchestrator)"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kforge.records import Attempt, Candidate, Evaluation, Receipt, RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunKforge

FORGERY = "\x1b[2K\x1b[Gcorrect: 20 cases; 99.00x over eager\x07 \u202eegaw\u2066\u200b\U000e0041[bold red]!"
OBEYED = ("\x1b[2K", "\r", "\x07", "\u202e", "\u2066", "\u200b", "\U000e0041", "\u2028")


def raising(candidate: Callable[..., str], text: str) -> str:
    return candidate(f"self.fail()\n\n    def fail(self):\n        raise ValueError({text!r})")


def test_only_one_module_of_the_command_line_prints(root: Path) -> None:
    """So that there is one place where foreign text is made harmless; `documents` writes JSON, which is ASCII."""
    found = []
    for path in sorted((root / "src" / "kforge" / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="print")):
                    found.append(path.name)
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="write")):
                    found.append(path.name)
    assert set(found) == {"lines.py", "documents.py"}


def test_reasons_are_escaped_in_lines_in_errors_and_in_progress(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    """The text of an exception, a problem's name and a line of its own that says `correct`."""
    (program := tmp_path / "raises.py").write_text(raising(candidate, FORGERY + "\ncorrect: 20 cases"))
    named = tmp_path / "tiny\x1b[31m\u202e.py"
    named.write_text(tiny.read_text())
    ran = kforge_in_process("eval", named, program, "-p", "null", "--no-compile-baseline")
    assert ran.status == 1
    for mark in OBEYED:
        assert mark not in ran.stdout
        assert mark not in ran.stderr
    assert not any(line.startswith("correct") for line in ran.stdout.splitlines())
    assert "\\x1b[2K\\x1b[Gcorrect" in ran.stdout
    assert "[bold red]!" in ran.stdout
    assert "\\x1b[31m\\u202e" in ran.stderr


def test_json_is_ascii_whatever_a_program_says(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    (program := tmp_path / "raises.py").write_text(raising(candidate, FORGERY))
    ran = kforge_in_process("eval", tiny, program, "-p", "null", "--no-compile-baseline", "--json")
    assert ran.stdout.isascii()
    assert FORGERY in json.loads(ran.stdout)["reason"]


def test_error_lines_are_escaped(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    ran = kforge_in_process("eval", tmp_path / "no\x1b]0;title\x07\u202e.py", tmp_path / "c.py")
    assert ran.status == 2
    assert ran.stderr.count("\n") == 1
    assert "\x1b" not in ran.stderr
    assert "no\\x1b]0;title\\x07\\u202e.py" in ran.stderr


def test_a_table_in_colour_shows_markup_and_escapes() -> None:
    """A reason that erases its line, and one that is rich's markup."""
    code = (
        "from tests.cli.test_forged_screens import attempt\n"
        "from kforge.cli.output.display import attempts_table\n"
        "from kforge.cli.output.lines import say_table\n"
        "say_table(attempts_table([attempt()], '[bold]title\\x1b[2J'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "[bold]title\\x1b[2J" in done.stdout
    assert "\\x1b[2K\\x1b[Gcorrect" in done.stdout
    assert "[bold red]!\\r\\u2028" in done.stdout
    assert "\x1b[2K" not in done.stdout


def attempt() -> Attempt:
    receipt = Receipt(
        problem="", candidate="", platform="null", precision="strict", seed="", device="", versions={}, sandbox="",
        timer="",
    )  # fmt: skip
    failure = RuntimeFailure(fault="raised", reason=f"{FORGERY}\r\u2028")
    return Attempt(
        index=0,
        phase="functional",
        candidate=Candidate(source="", platform="null"),
        evaluation=Evaluation(verdict=failure, receipt=receipt),
    )


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        ("\ufeff{}", "\n"),
        ("{}", "\r\n"),
        pytest.param("\ufeff{}", "\r\n", marks=pytest.mark.volume),
        pytest.param("{}", "\n", marks=pytest.mark.volume),
    ],
    ids=["byte-order mark", "line ends", "both", "neither"],
)
def test_a_program_and_a_problem_with_a_mark_or_other_line_ends_are_judged(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str], written: str, ends: str
) -> None:
    """An honest near miss: editors write such files."""
    program = "# größer 漢字 🚀\n" + candidate("torch.relu(x + self.shift)")
    for name, text in (("tiny.py", tiny.read_text()), ("program.py", program)):
        (tmp_path / name).write_bytes(written.format(text).replace("\n", ends).encode())
    ran = kforge_in_process("eval", "tiny.py", "program.py", "-p", "null", "--no-compile-baseline")
    assert (ran.status, ran.stdout.partition(":")[0]) == (0, "correct")


def test_a_file_without_end_is_refused_in_one_line(kforge_in_process: RunKforge, tiny: Path) -> None:
    ran = kforge_in_process("eval", tiny, "/dev/zero", "-p", "null")
    assert (ran.status, ran.stdout) == (2, "")
    assert "larger than" in ran.stderr
