"""Writes runs and is killed while doing so. Run as a process of its own by test_kill.py, never imported by it.

    killed_writer.py points ROOT    one run for every system call of a whole run, killed just before that call
    killed_writer.py some ROOT      the same for every third system call
    killed_writer.py random ROOT    twenty runs, each killed after a random time
    killed_writer.py resume ROOT    go on with every one of them to its end

A child is forked for every run, so that the imports are paid once. What it has finished it says in `<run>.acks`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
from conftest import make_attempt, make_header
from kforge.records import Outcome, Usage
from kforge.store import RunFolder
from kforge.store.folder import run_paths

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = {"open", "mkdir", "replace", "flush", "fsync", "flock", "ftruncate", "pwrite"}


def write_run(root: Path, say: Callable[[str], object]) -> None:
    """The resumable loop in small: three attempts of two stages, then the outcome."""
    root.mkdir(exist_ok=True)
    known = run_paths(root)
    folder = RunFolder.open(known[0]) if known else RunFolder.create(root, make_header())
    say("created")
    with folder.writing():
        if folder.outcome() is not None:
            return
        for index in range(len(folder.attempts()), 3):
            attempt = make_attempt(index, speedup=(None, 3.0, 2.0)[index])
            for name, record in (("candidate", attempt.candidate), ("evaluation", attempt.evaluation)):
                if folder.stage(index, name, type(record)) is None:
                    folder.put_stage(index, name, record)
                    say(f"stage {index} {name}")
            folder.commit(attempt)
            say(f"commit {index}")
        folder.finish(Outcome(stopped="done", best=1, usage=Usage(), seconds=0.0))
        say("finish")


def die_before(call: int) -> None:
    seen = 0

    def hook(_: object, event: str, called: Any) -> None:
        nonlocal seen
        if event == "c_call" and called.__name__ in CALLS:
            seen += 1
            if seen == call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(hook)


def child(root: Path, prepare: Callable[[], object]) -> int:
    """Fork a writer; returns its process id."""
    acks = os.open(f"{root}.acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        prepare()
        write_run(root, lambda line: os.write(acks, f"{line}\n".encode()))
        os._exit(0)
    os.close(acks)
    return pid


def succeeded(pid: int) -> bool:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status == 0


def main(mode: str, base: Path) -> None:
    if mode in ("points", "some"):
        call = 1
        while not succeeded(child(base / f"{call:03d}", partial(die_before, call))):
            call += 1 if mode == "points" else 3
    elif mode == "random":
        started = time.monotonic()
        assert succeeded(child(base / "whole", lambda: None))
        whole = time.monotonic() - started
        for number in range(20):
            pid = child(base / f"{number:03d}", lambda: None)
            time.sleep(random.uniform(0, whole))
            os.kill(pid, signal.SIGKILL)  # a child that is done already stays ours until it is waited for
            succeeded(pid)
    elif mode == "resume":
        for acks in sorted(base.glob("*.acks")):
            assert succeeded(child(acks.with_suffix(""), lambda: None))
    else:
        raise SystemExit(f"no such mode: {mode}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
