"""Builds programs for a suite's problems before anything is timed: baselines, and the smith's first programs.

Building uses processors and hardly the device, so a few processes build many problems at once, each process one problem
after the other. Nothing may run beside a program that is timed, so all building comes first. A build that fails here
fails again when its problem is evaluated, and is reported then.
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
from kforge.run_options import RunOptions
from kforge.session import build_ahead, open_judge, usable_platform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kforge.problems import Task
    from kforge.settings import Settings

DEADLINE = 900.0
"""Seconds that the build of one problem may take."""
DONE = "done\n"


class BuildOrders(Record):
    """The settings that all building processes use."""

    options: RunOptions
    platform_dirs: tuple[str, ...]


def build(
    tasks: Sequence[Task], options: RunOptions, chosen: Settings, extra: Sequence[Path], jobs: int
) -> Iterator[Task]:
    """Build all problems with `jobs` processes. Yields each task when it is built or has failed."""
    folders = tuple(str(path.absolute()) for path in (*chosen.platform_dirs, *extra))
    orders = BuildOrders(options=options, platform_dirs=folders)
    idle: SimpleQueue[BuildProcess] = SimpleQueue()

    def one(problem: Problem) -> None:
        builder = idle.get()
        try:
            builder.build(problem)
        finally:
            idle.put(builder)

    with ExitStack() as builders, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            idle.put(builders.enter_context(closing(BuildProcess(orders, chosen.child_environment))))
        try:
            pending = {pool.submit(one, task.problem): task for task in tasks if task.problem is not None}
            for done in as_completed(pending):
                yield pending[done]
        finally:
            pool.shutdown(cancel_futures=True)


class BuildProcess:
    """A process that builds one problem after the other. If a problem crashes it, it is started again."""

    def __init__(self, orders: BuildOrders, environment: Mapping[str, str]) -> None:
        self._orders = orders
        # problems are UTF-8, whatever encoding the terminal has
        self._environment = {**environment, "PYTHONPATH": import_path(), "PYTHONUTF8": "1"}
        self._process: subprocess.Popen[str] | None = None

    def build(self, problem: Problem) -> None:
        orders = [problem.to_json()]
        if self._process is None:
            orders.insert(0, self._orders.to_json())
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
        """Let the process end by itself within `patience` seconds, then kill it."""
        process, self._process = self._process, None
        if process is None:
            return
        for seconds in (patience, None):
            with suppress(BrokenPipeError, subprocess.TimeoutExpired):
                process.communicate(timeout=seconds)  # the process ends when its input is closed
            process.kill()


def main() -> None:
    """Run the building process. Problems arrive on standard input, and a line for each goes to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a problem prints must not go to the answers
    orders = BuildOrders.from_json(sys.stdin.readline())
    options, chosen = orders.options, settings.load()
    platform = usable_platform(options.platform, chosen, [Path(path) for path in orders.platform_dirs])
    with open_judge(platform, chosen, options.policy) as judge:
        for line in sys.stdin:
            judge.freshen()
            with suppress(Exception):  # a problem can hold any code
                build_ahead(Problem.from_json(line), options, chosen, platform, judge)
            answers.write(DONE)
            answers.flush()


if __name__ == "__main__":
    main()
