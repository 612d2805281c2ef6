"""Sparklines, diffs, colours, `-q`, `-v` and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.cli.output.diffs import of_attempts, unified
from kforge.cli.output.sparklines import BARS, WIDTH, sparkline

if TYPE_CHECKING:
    from tests.cli.conftest import Forged, Terminal
    from tests.conftest import RunKforge


@given(st.lists(st.floats(1e-9, 1e9), max_size=200), st.integers(1, 60))
def test_a_sparkline_has_a_bar_for_every_value_up_to_its_width(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(len(values), width)
    assert set(drawn) <= set(BARS)
    if len(set(drawn)) > 1:
        assert {BARS[0], BARS[-1]} <= set(drawn)


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == BARS
    assert sparkline([2.0, 2.0]) == BARS[0] * 2
    assert sparkline(list(range(1000)))[-1] == BARS[-1]
    assert len(sparkline(list(range(1000)))) == WIDTH


def test_equal_programs_have_no_difference() -> None:
    assert unified("a\nb\n", "a\nb\n", ("one", "other")) == ""
    assert unified("a\nb\n", "a\nc\n", ("one", "other")).endswith(" a\n-b\n+c")


def test_show_draws_samples_on_a_terminal_and_not_elsewhere(
    terminal: Terminal, kforge_in_process: RunKforge, forged: Forged
) -> None:
    shown = terminal("show", str(forged.folder), "--diff")
    assert any(line.strip().startswith("kernel") and set(line) & set(BARS) for line in shown.screen)
    assert "--- attempt 2" in shown.text
    piped = kforge_in_process("show", forged.folder, "--diff").stdout
    assert not set(piped) & set(BARS)
    assert "\n--- attempt 2\n+++ attempt 3\n" in piped
    assert "\x1b" not in piped


def test_a_diff_of_attempts_says_what_each_was_made_from(forged: Forged) -> None:
    from kforge.store import RunFolder

    differences = list(of_attempts(RunFolder.open(forged.folder).attempts()))
    assert [text.partition("\n")[0] for text in differences] == ["--- nothing", "--- attempt 1", "--- attempt 2"]


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_for_terminals_that_want_them(
    forged: Forged, clean_environment: dict[str, str], variables: dict[str, str], coloured: bool
) -> None:
    import pty

    ours, theirs = pty.openpty()
    kept = {name: value for name, value in clean_environment.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kforge", "show", str(forged.folder), "--diff"],
        env=kept | variables, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    told = b""
    try:
        while piece := os.read(ours, 65536):
            told += piece
    except OSError:  # how Linux tells that the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    assert (b"\x1b[32m+" in told) == coloured


def test_quiet_and_verbose_exclude_each_other(kforge_in_process: RunKforge) -> None:
    ran = kforge_in_process("forge", "none.py", "-q", "-v")
    assert (ran.status, ran.stdout, ran.stderr) == (2, "", "kforge: Invalid value: -q and -v exclude each other\n")


def test_verbose_tells_every_step(kforge_in_process: RunKforge, forged: Forged) -> None:
    usual, verbose, quiet = (
        kforge_in_process("eval", forged.root / "tiny.py", forged.folder / "best.py", "-p", "null", *more)
        for more in (("--no-compile-baseline",), ("--no-compile-baseline", "-v"), ("--no-compile-baseline", "-q"))
    )
    assert quiet.stderr == ""
    assert "case 1 of" in verbose.stderr
    assert "case 2 of" in verbose.stderr
    assert verbose.stderr.count("\n") > usual.stderr.count("\n")
    assert quiet.stdout.split("\n")[0].partition(":")[0] == usual.stdout.split("\n")[0].partition(":")[0]


def test_a_shell_completes_commands_and_options() -> None:
    code = "import sys; sys.argv[0] = 'kforge'; from kforge.cli import main; main()"

    def completed(words: str, shell: str = "bash") -> list[str]:
        variables = {"_KFORGE_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        return done.stdout.split()

    assert completed("kforge comp") == ["compare"]
    assert "--as" in completed("kforge export --")
