"""Progress on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol, Self

from kforge.cli import words
from kforge.records import Usage
from kforge.store import best_attempt

if TYPE_CHECKING:
    from rich.table import Table

    from kforge.records import Attempt


class Display(Protocol):
    """What a command tells while it works."""

    def stage(self, text: str) -> None: ...
    def attempt(self, attempt: Attempt) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


def open_display(title: str) -> Display:
    return LiveDisplay(title) if sys.stderr.isatty() else PlainDisplay(title)


class PlainDisplay:
    """One line per stage and attempt, with the seconds since the start."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.monotonic()

    def stage(self, text: str) -> None:
        self._say(f"  {text}")

    def attempt(self, attempt: Attempt) -> None:
        self._say(f"attempt {words.line(attempt)}")

    def __enter__(self) -> Self:
        self._say(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", file=sys.stderr, flush=True)


class LiveDisplay:
    """The attempts so far, what is going on now, the best, and what it has cost."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        self.now = "starting"
        self.attempts: list[Attempt] = []
        self._live = Live(get_renderable=self._table, console=Console(stderr=True), refresh_per_second=8)

    def stage(self, text: str) -> None:
        self.now = text

    def attempt(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.now = "done"
        self._live.stop()

    def _table(self) -> Table:
        table = attempts_table(self.attempts, self.title)
        best = best_attempt(self.attempts)
        best_words = f"best {words.times(best.speedup)}" if best and best.speedup else "nothing correct yet"
        usage = sum((a.usage for a in self.attempts), Usage())
        table.caption = f"{self.now} · {best_words} · {words.cost(usage)}"
        return table


def attempts_table(attempts: list[Attempt], title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", caption_justify="left", expand=False)
    for name in ("#", "pass", "from", "state", "error or speedup over eager (95 % interval)"):
        table.add_column(name)
    best = best_attempt(attempts)
    for attempt in attempts:
        mark = "bold green" if attempt is best else "green" if attempt.speedup else "red"
        table.add_row(
            str(attempt.index),
            attempt.phase,
            "" if attempt.parent is None else str(attempt.parent),
            Text(words.state(attempt.verdict), style=mark),
            Text(words.detail(attempt.verdict)),
        )
    return table
