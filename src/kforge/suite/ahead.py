"""What a suite's problems need first, built before anything is timed: baselines, and what the smith begins with.

Building takes processors and hardly the device, so many are built at once, each by a process of its own; and since
nothing may work beside a program that is timed, all of it comes before. What fails here fails again when it is judged,
and is told then.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import settings
from kforge.errors import KforgeError
from kforge.evaluation.launch import import_path
from kforge.records import Problem, Record
from kforge.session import Options, build_ahead, judge_of, usable_platform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.problems import Task
    from kforge.settings import Settings

DEADLINE = 900.0
"""Seconds for one problem."""


class Order(Record):
    """What one process builds."""

    problem: Problem
    options: Options
    platform_dirs: tuple[str, ...]


def build(
    tasks: Sequence[Task], options: Options, chosen: Settings, extra: Sequence[Path], jobs: int
) -> Iterator[Task]:
    """Those that were tried, as they are done with."""
    folders = tuple(str(path.absolute()) for path in (*chosen.platform_dirs, *extra))
    environment = {**chosen.child_environment, "PYTHONPATH": import_path()}

    def one(problem: Problem) -> None:
        order = Order(problem=problem, options=options, platform_dirs=folders)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-P", "-m", __name__], input=order.to_json(), text=True, env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE, check=False,
            )  # fmt: skip

    with ThreadPoolExecutor(jobs) as pool:
        try:
            pending = {pool.submit(one, task.problem): task for task in tasks if task.problem is not None}
            for done in as_completed(pending):
                yield pending[done]
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> None:
    """In a process of its own: the order comes by standard input."""
    order = Order.from_json(sys.stdin.read())
    chosen = settings.load()
    with suppress(KforgeError):
        platform = usable_platform(order.options.platform, chosen, [Path(path) for path in order.platform_dirs])
        with judge_of(order.options, platform, chosen) as judge:
            build_ahead(order.problem, order.options, chosen, platform, judge)


if __name__ == "__main__":
    main()
