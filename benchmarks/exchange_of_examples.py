"""Runs the recorded examples through the exchange, with two moves between folders, and compares that with a replay.

    python benchmarks/exchange_of_examples.py [NAME ...]

A suite of the examples is begun with `--model exchange`. In each round every prompt that waits is answered from the
recordings, in an order other than that of the suite, as a colleague with files would do. After the first round the
suite's folder moves to another folder and another user's key ("another machine"), after the second one it moves back.
Then the same suite is run twice with `--model replay:` on the same answers. Prints the results side by side; exit
status 0 when every problem has the same states as a replay, attempt by attempt. Problems whose two replays differ are
left out: there the clock decides which program is best, and so which question comes next. Every program is really
built, judged and timed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kforge.models import Exchange
from kforge.models.exchange import find_name, read_reply

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
OPTIONS = ("-p", "cpu", "--no-compile-baseline", "--replications", "0", "--no-sanitize")
MOST_ROUNDS = 20


def main(names: list[str]) -> int:
    recordings = {path.parent.name: path for path in sorted(EXAMPLES.glob("*/exchange")) if _is_wanted(path, names)}
    attempts = str(max(_programs(path) for path in recordings.values()))
    with tempfile.TemporaryDirectory(prefix="kforge-exchange-") as folder:
        work = Path(folder)
        problems, together = work / "problems", work / "recording"
        problems.mkdir()
        together.mkdir()
        for number, (name, recording) in enumerate(recordings.items()):
            shutil.copy(EXAMPLES / name / "problem.py", problems / f"{name}.py")
            _add(recording, together, number)
        ended = _by_exchange(work, problems, together, attempts)
        replay = ("suite", problems, *OPTIONS, "-m", f"replay:{together}", "-n", attempts, "--json")
        replays = [_states(json.loads(_kforge(work / "here", *replay))) for _ in range(2)]
        return _compare(_states(ended), replays)


def _is_wanted(recording: Path, names: list[str]) -> bool:
    return not names or recording.parent.name in names


def _programs(recording: Path) -> int:
    return sum(each.request.agent == "generation" for each in Exchange(recording).questions())


def _add(recording: Path, together: Path, number: int) -> None:
    """Copy a recording into one folder with the others. Files named by identities keep their names."""
    for file in recording.iterdir():
        name, _, ending = file.name.partition(".")
        index, dash, agent = name.partition("-")
        renamed = f"{number * 100 + int(index):03d}-{agent}" if dash else name
        shutil.copy(file, together / f"{renamed}.{ending}")


def _by_exchange(work: Path, problems: Path, recording: Path, attempts: str) -> dict[str, Any]:
    """Answer and resume the suite until no recorded answer is left, with two moves between folders and users.

    Returns the document that the last `--json` printed.
    """
    begun = _kforge(work / "here", "suite", problems, *OPTIONS, "-m", "exchange", "-n", attempts, "--json")
    suite, home = Path(json.loads(begun)["run"]), work / "here"
    for round_ in range(1, MOST_ROUNDS + 1):
        answered, unanswerable = _answer_backwards(suite, recording)
        print(f"round {round_}: {answered} answered, {unanswerable} without a recorded answer, in {suite.parent}")
        if not answered:
            break  # the recordings have no answers to the questions that still wait
        if round_ <= 2:
            home = work / ("there" if round_ == 1 else "here")
            moved = home / "runs" / suite.name
            moved.parent.mkdir(parents=True, exist_ok=True)
            suite = Path(shutil.move(suite, moved))
        ended = json.loads(_kforge(home, "resume", suite, "--trust", "--json"))
    return dict(ended)


def _answer_backwards(suite: Path, recording: Path) -> tuple[int, int]:
    """Answer the waiting questions from a recording, the last one first.

    Returns the numbers of questions with and without a recorded answer.
    """
    counts = [0, 0]
    for folder in sorted(suite.glob("problems/**/exchange"), reverse=True):
        for question in reversed(Exchange(folder).waiting()):
            reply = read_reply(recording, question.request) if find_name(recording, question.request) else None
            counts[reply is None] += 1
            if reply is not None:
                question.reply.write_text(reply.text)
    return counts[0], counts[1]


def _kforge(home: Path, *arguments: object) -> str:
    """Run a command as a user whose key and runs are in `home`; exit statuses 0, 1 and 75 are all results."""
    state = {"XDG_STATE_HOME": str(home / "state"), "KFORGE_RUNS": str(home / "runs")}
    command = [sys.executable, "-m", "kforge", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | state, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 75):
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def _states(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the states of all attempts, by problem."""
    return {
        each["name"]: [
            json.loads(file.read_text()).get("evaluation", {}).get("verdict", {}).get("state", "generation_failure")
            for file in sorted(Path(each["run"]).glob("attempts/*/attempt.json"))
        ]
        for each in document["problems"]
    }


def _compare(exchanged: dict[str, list[str]], replays: list[dict[str, list[str]]]) -> int:
    """Print the states of each problem. Returns 1 if some differ from those of two replays that agree."""
    status = 0
    for name, states in exchanged.items():
        first, second = (replay[name] for replay in replays)
        if states in (first, second):
            said = "same"
        elif first != second:
            said = f"two replays differ, too: {', '.join(first)} and {', '.join(second)}"
        else:
            said, status = f"replayed: {', '.join(first)}", 1
        print(f"{name}: {', '.join(states)} ({said})")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
