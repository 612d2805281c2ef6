"""What a suite's problems need first, built before anything is timed: baselines, and what the smith begins with.

Building takes processors and hardly the device, so many are built at once, by a few processes that take one problem
after the other; and since nothing may work beside a program that is timed, all of it comes before. What fails here
fails again when it is judged, and is told then.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kforge import settings
from kforge.evaluation.processes.launch import import_path
from kforge.records import Problem, Record
from kforge.session import Options, build_ahead, open_judge, usable_platform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.problems import Task
    from kforge.settings import Settings

DEADLINE = 900.0
"""Seconds for one problem."""
DONE = "done\n"


class Workshop(Record):
    """What all processes build by."""

    options: Options
    platform_dirs: tuple[str, ...]


def build(
    tasks: Sequence[Task], options: Options, chosen: Settings, extra: Sequence[Path], jobs: int
) -> Iterator[Task]:
    """Those that were tried, as they are done with."""
    folders = tuple(str(path.absolute()) for path in (*chosen.platform_dirs, *extra))
    workshop = Workshop(options=options, platform_dirs=folders)
    idle: SimpleQueue[Builder] = SimpleQueue()

    def one(problem: Problem) -> None:
        builder = idle.get()
        try:
            builder.build(problem)
        finally:
            idle.put(builder)

    with ExitStack() as builders, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            idle.put(builders.enter_context(closing(Builder(workshop, chosen.child_environment))))
        try:
            pending = {pool.submit(one, task.problem): task for task in tasks if task.problem is not None}
            for done in as_completed(pending):
                yield pending[done]
        finally:
            pool.shutdown(cancel_futures=True)


class Builder:
    """A process that builds one problem after the other, and another one where a problem took it along."""

    def __init__(self, workshop: Workshop, environment: Mapping[str, str]) -> None:
        self._workshop = workshop
        # problems are UTF-8, whatever the terminal is
        self._environment = {**environment, "PYTHONPATH": import_path(), "PYTHONUTF8": "1"}
        self._process: subprocess.Popen[str] | None = None

    def build(self, problem: Problem) -> None:
        orders = [problem.to_json()]
        if self._process is None:
            orders.insert(0, self._workshop.to_json())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__], env=self._environment, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        answered: Sequence[object] = ()
        with suppress(BrokenPipeError):
            to.writelines(f"{order}\n" for order in orders)
            to.flush()
            answered = select.select([answers], [], [], DEADLINE)[0]
        if not answered or answers.readline() != DONE:
            self.close(patience=0.0)

    def close(self, patience: float = 30.0) -> None:
        """Wait for it to clear up and end, or kill it."""
        process, self._process = self._process, None
        if process is None:
            return
        for seconds in (patience, None):
            with suppress(BrokenPipeError, subprocess.TimeoutExpired):
                process.communicate(timeout=seconds)  # it ends when nobody orders any more
            process.kill()


def main() -> None:
    """In a process of its own: problems come by standard input, and an answer to each goes to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a problem may print
    workshop = Workshop.from_json(sys.stdin.readline())
    options, chosen = workshop.options, settings.load()
    platform = usable_platform(options.platform, chosen, [Path(path) for path in workshop.platform_dirs])
    with open_judge(platform, chosen, options.policy) as judge:
        for line in sys.stdin:
            judge.freshen()
            with suppress(Exception):  # a problem is anybody's code
                build_ahead(Problem.from_json(line), options, chosen, platform, judge)
            answers.write(DONE)
            answers.flush()


if __name__ == "__main__":
    main()
