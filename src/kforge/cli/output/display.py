"""Progress on standard error: live on a terminal, plain lines elsewhere.

A stage reports `STAGE` or `STAGE: DETAIL` (see `kforge.evaluation.stages`). A terminal shows the latest report, with
the seconds since its stage began. Elsewhere a new stage is a line, further details of it are at most one line in five
seconds, and after ten seconds without a report a line says that the stage is still running.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

from kforge.cli.output import verbosity, words
from kforge.cli.output.lines import Line, note_progress, plain
from kforge.records import Usage, best_attempt

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from kforge.records import Attempt

REPEAT_SECONDS = 5.0
"""Least seconds between two plain lines about one stage."""
STILL_SECONDS = 10.0
"""Seconds without a report after which a plain line says that the stage is still running."""
REFRESHES = 2
"""Refreshes per second of a live display. Each takes 1 ms of a processor that may be timing a program."""


class Progress(Protocol):
    """Shows what a command does while it works."""

    def stage(self, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, *_: object) -> None: ...


class Display(Progress, Protocol):
    """Shows the progress of a command that makes attempts."""

    def attempt(self, attempt: Attempt) -> None: ...


def open_display(title: str) -> Display:
    """Return the display for a command that makes attempts. It lists them."""
    return AttemptsDisplay(title) if is_live() else PlainDisplay(title)


def open_progress(title: str = "", *, still: float | None = None) -> Progress:
    """Return the display for a command that makes no attempts: one line that says what runs.

    With `still`, a display without a terminal does not print stages. It only prints that the stage is still running,
    after this many seconds of silence.
    """
    if is_live():
        return LineDisplay(title)
    return PlainDisplay(title) if still is None else PlainDisplay(title, still=still, quiet=True)


def open_preparation(title: str) -> Progress:
    """Return the display for a step that may refuse its input: without a terminal, it prints the title at the first
    stage, and then only what is still running."""
    return LineDisplay("") if is_live() else FirstStage(title)


def is_live() -> bool:
    """Return whether progress is redrawn in place: standard error is a terminal that can do so, and neither `-q` nor
    `-v` is given."""
    if not sys.stderr.isatty() or verbosity.level() is not verbosity.Verbosity.USUAL:
        return False
    from rich.console import Console

    return not Console(stderr=True).is_dumb_terminal


class Now:
    """The stage that runs now, its latest detail, and when it began."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.begin = time.monotonic()

    def tell(self, text: str) -> bool:
        """Store a report. Returns whether it is about a new stage."""
        changed = text.partition(": ")[0] != self.text.partition(": ")[0]
        self.text = text
        if changed:
            self.begin = time.monotonic()
        return changed

    def __str__(self) -> str:
        """Return the stage with its seconds, and its detail: `checking correctness (12 s): case 7 of 20`."""
        seconds = int(time.monotonic() - self.begin)
        stage, colon, detail = self.text.partition(": ")
        tells_seconds = re.match(r"\d+ s ", detail) is not None  # the detail shows seconds already
        return f"{stage} ({seconds} s){colon}{detail}" if seconds and not tells_seconds else self.text


class PlainDisplay:
    """Prints one line per stage and attempt, with the seconds since the start."""

    def __init__(
        self, title: str, *, repeat: float = REPEAT_SECONDS, still: float = STILL_SECONDS, quiet: bool = False
    ) -> None:
        self.title = title
        self._quiet = quiet
        self.start = self._said = time.monotonic()
        self._repeat = 0.0 if verbosity.level() is verbosity.Verbosity.VERBOSE else repeat
        self._still = still
        self._now: Now | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def stage(self, text: str) -> None:
        with self._lock:
            if self._now is None:
                self._now, changed = Now(text), True
            else:
                changed = self._now.tell(text)
            if not self._quiet and (changed or time.monotonic() - self._said >= self._repeat):
                self._say(f"  {text}")

    def say(self, text: str) -> None:
        with self._lock:
            self._say(text)

    def attempt(self, attempt: Attempt) -> None:
        self.say(f"attempt {words.line(attempt)}")

    def __enter__(self) -> Self:
        if self.title:
            self.say(self.title)
        self._pulse.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._pulse.join()

    def _beat(self) -> None:
        while not self._done.wait(max(0.0, self._said + self._still - time.monotonic())):
            with self._lock:
                if time.monotonic() - self._said >= self._still:
                    self._say(f"  still {self._now or 'starting'}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        note_progress(f"[{self._said - self.start:6.1f} s] {text}")


class FirstStage(PlainDisplay):
    """Prints the title with the first stage, and of the later stages only that they are still running.

    Input that is refused before the first stage gets one error line and no other output.
    """

    def __init__(self, title: str, *, still: float = STILL_SECONDS) -> None:
        super().__init__("", still=still, quiet=True)
        self._first = title

    def stage(self, text: str) -> None:
        if self._now is None:
            self.say(f"{self._first}: {text}")
        super().stage(text)


class LineDisplay:
    """Shows a title, and below it one line that says what runs and for how long. The line is removed at the end."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        self.start = time.monotonic()
        self.now = Now("starting")
        self._console = Console(stderr=True)
        self._live = Live(
            get_renderable=self._shown, console=self._console, refresh_per_second=REFRESHES, transient=True
        )

    def stage(self, text: str) -> None:
        self.now.tell(text)

    def say(self, text: str) -> None:
        self._console.print(Line(f"[{time.monotonic() - self.start:6.1f} s] {text}"))

    def __enter__(self) -> Self:
        if self.title:
            self._console.print(Line(self.title))
        self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._live.stop()

    def _shown(self) -> RenderableType:
        return Line(f"  {self.now}")


class AttemptsDisplay(LineDisplay):
    """Shows the attempts so far, what runs now, the best attempt, and the cost of the models.

    The display is removed when the command succeeds, because the command prints its own table. After an error it stays.
    """

    def __init__(self, title: str) -> None:
        self.attempts: list[Attempt] = []
        super().__init__(title)  # rich asks for the content at once

    def attempt(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def __exit__(self, kind: object, *_: object) -> None:
        self._live.transient = kind is None
        self._live.stop()

    def _shown(self) -> Group:
        from rich.console import Group

        shown: list[RenderableType] = [attempts_table(self.attempts, "")] if self.attempts else []
        return Group(*shown, Line("  " + " · ".join(self._facts())))

    def _facts(self) -> list[str]:
        best = best_attempt(self.attempts)
        facts = [str(self.now)]
        if best is not None:
            facts.append(f"best so far: attempt {best.index}")
        elif self.attempts:
            facts.append("nothing correct yet")
        usage = sum((a.usage for a in self.attempts), Usage())
        return [*facts, words.cost(usage)] if usage.requests else facts


def attempts_table(attempts: list[Attempt], title: str) -> Table:
    from rich.table import Table

    shown_title = plain(title, "table.title") if title else None
    table = Table(title=shown_title, title_justify="left", expand=False)
    for name in ("#", "pass", "from", "state", "error, or speedup over eager (95 % interval)"):
        table.add_column(name)
    best = best_attempt(attempts)
    for attempt in attempts:
        mark = "bold green" if attempt is best else "green" if attempt.is_kernel else "red"
        table.add_row(
            str(attempt.index),
            attempt.phase,
            "" if attempt.parent is None else str(attempt.parent),
            plain(words.attempt_state(attempt), mark),
            plain(words.attempt_detail(attempt)),
        )
    return table
