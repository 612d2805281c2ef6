"""Progress: what a terminal shows, and which lines are printed where there is none."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING

from kforge.cli.output.display import FirstStage, Now, PlainDisplay
from kforge.cli.output.suite_progress import Pace, PlainSuite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from tests.cli.conftest import Forged, Terminal
    from tests.conftest import RunKforge


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def test_plain_lines_about_one_stage_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay("title", repeat=1e6, still=1e6) as display:
        for number in range(1, 21):
            display.stage(f"checking correctness: case {number} of 20")
        display.stage("timing")
        display.stage("timing: 1 s of at most 10 s")
    assert printed(capsys) == ["title", "  checking correctness: case 1 of 20", "  timing"]


def test_a_later_detail_of_a_stage_is_printed_after_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay("title", repeat=0.0, still=1e6) as display:
        for number in (1, 2):
            display.stage(f"checking correctness: case {number} of 2")
    assert printed(capsys) == [
        "title", "  checking correctness: case 1 of 2", "  checking correctness: case 2 of 2",
    ]  # fmt: skip


def test_a_silent_stage_is_said_to_be_still_running(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with PlainDisplay("title", repeat=1e6, still=0.6) as display:
        display.stage("checking correctness")
        display.stage("checking correctness: case 3 of 20")
        until(lambda: bool(lines.extend(printed(capsys)) or len(lines) >= 4))
    assert lines[:2] == ["title", "  checking correctness"]
    for line in lines[2:4]:
        assert re.fullmatch(r"  still checking correctness( \(\d s\))?: case 3 of 20", line)


def test_a_quiet_display_prints_only_what_still_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with PlainDisplay("", still=0.3, quiet=True) as display:
        display.stage("norms/layer_norm: building the program")
        display.stage("norms/layer_norm: timing")
        until(lambda: bool(lines.extend(printed(capsys)) or lines))
        display.say("1/2 norms/layer_norm: correct")
    lines += printed(capsys)
    assert re.fullmatch(r"  still norms/layer_norm( \(\d s\))?: timing", lines[0])
    assert lines[-1] == "1/2 norms/layer_norm: correct"


def test_the_first_stage_of_a_preparation_is_printed_at_once_and_later_ones_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FirstStage("tiny on null", still=1e6) as display:
        assert printed(capsys) == []
        display.stage("starting the evaluator")
        assert printed(capsys) == ["tiny on null: starting the evaluator"]
        display.stage("preparing the problem")
    assert printed(capsys) == []


def test_a_suite_in_a_log_names_the_first_problem_at_once_and_no_later_one(capsys: pytest.CaptureFixture[str]) -> None:
    pace = Pace(5)
    for _ in range(2):  # finished before
        pace.count()
    with PlainSuite(pace) as display:
        display.tell("norms/layer_norm", "starting the evaluator")
        assert printed(capsys) == ["  3/5 norms/layer_norm: starting the evaluator"]
        display.tell("norms/layer_norm", "timing")
        pace.count()
        display.tell("norms/rms_norm", "starting the evaluator")
    assert printed(capsys) == []


def test_the_seconds_are_those_of_the_stage_and_not_of_its_latest_detail() -> None:
    now = Now("compiling the torch.compile baseline")
    now.begin -= 30.5
    assert str(now) == "compiling the torch.compile baseline (30 s)"
    assert not now.tell("compiling the torch.compile baseline: again")
    assert str(now) == "compiling the torch.compile baseline (30 s): again"
    assert now.tell("timing")
    assert str(now) == "timing"
    now.begin -= 5.5
    now.tell("timing: 4 s of at most 10 s, undecided")
    assert str(now) == "timing: 4 s of at most 10 s, undecided", "one clock is enough"


def test_eval_on_a_terminal_shows_a_line_and_no_table(
    terminal: Terminal, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    (tmp_path / "wrong.py").write_text(candidate("torch.relu(x)"))
    shown = terminal("eval", tiny, "wrong.py", "-p", "null", "--no-compile-baseline")
    assert shown.status == 1
    assert "checking correctness" in shown.text
    assert "tiny on null: wrong.py" in shown.text
    for unwanted in ("nothing correct yet", "model calls", "speedup over eager", "┃", "verify"):
        assert unwanted not in shown.text
    assert shown.screen[0] == "tiny on null: wrong.py"
    assert shown.screen[1].startswith("mismatch: "), "the line of progress is gone"


def test_seconds_tick_on_a_terminal_while_nothing_is_told(
    terminal: Terminal, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(2.5)\n" + candidate("torch.relu(x)"))
    shown = terminal("eval", tiny, "sleeps.py", "-p", "null", "--no-compile-baseline")
    assert "building the program (1 s)" in shown.text
    assert "building the program (2 s)" in shown.text


def test_forge_on_a_terminal_shows_its_attempts_once(
    terminal: Terminal, tiny: Path, script: Callable[..., str], answers: object
) -> None:
    shown = terminal(
        "forge", tiny, "-p", "null", "-m", script(*["no program in this", "none in this"] * 2), "-n", "2",
        "--no-compile-baseline",
    )  # fmt: skip
    assert shown.status == 1
    assert "asking the generation agent" in shown.text
    last = shown.screen
    assert sum("generation failure" in line for line in last) == 2, "the live table is gone, the final one is there"
    assert "asking" not in "\n".join(last)


def test_a_slow_problem_is_not_silent_before_its_run_begins(terminal: Terminal, tiny: Path) -> None:
    tiny.write_text("import time\ntime.sleep(1.5)\n" + tiny.read_text())
    shown = terminal("forge", tiny, "-p", "null", "-m", "exchange", "--no-compile-baseline")
    assert shown.status == 75
    assert "preparing the problem (1 s)" in shown.text


def test_the_doctor_says_on_a_terminal_what_it_examines(
    terminal: Terminal, small_platform: Callable[[str], Path]
) -> None:
    shown = terminal("doctor", "small", "--platform-dir", small_platform("small"))
    assert shown.status == 0
    assert "  examining small: " in shown.text
    assert shown.screen[0].startswith("small: works: "), "and then it is gone"


def test_a_repetition_is_told_as_one(forged: Forged) -> None:
    assert re.search(r"\]   evaluating attempt \d again, 1 of 3\n", forged.stderr)
    assert not re.search(r"again.*\n.*\]   checking correctness", forged.stderr), "whose correctness is known"


def test_nothing_but_progress_comes_from_a_run(forged: Forged) -> None:
    for line in forged.stderr.splitlines():
        assert re.match(r"\[ *\d+\.\d s\] ", line), "no warning and no log of a library"


def test_a_server_that_cannot_be_reached_stops_a_run_with_one_line_that_says_how_to_go_on(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = f"openai:tiny@http://127.0.0.1:{port}/v1"
    ran = kforge_in_process("forge", tiny, "-p", "null", "-m", model, "--no-compile-baseline")
    (run,) = (tmp_path / "kforge-runs").glob("*-tiny-*")
    assert (ran.status, ran.stdout) == (2, "")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"kforge: {model}: the server cannot be reached, it refuses the connection; ")
    assert last.endswith(f"; to go on: kforge resume {run}")
