"""Prints the ledger of a run: the cost of each agent's calls, and the cost and time at which each speedup was
reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.cli.output import words
from kforge.cli.output.lines import plain, say, say_table
from kforge.models import Ledger
from kforge.models.progress import progress
from kforge.records import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kforge.models.progress import RunProgress
    from kforge.store import RunFolder


def print_ledger(run: RunFolder) -> None:
    """Print the calls by agent, and the speedup against dollars and seconds; nothing for a run without calls."""
    ledger = Ledger.read(run.exchange)
    if not ledger.calls:
        return
    say_table(_calls(ledger))
    if ledger.prices:
        say(f"prices: {'; '.join(ledger.prices)}")
    if attempts := run.attempts():
        say_table(_progress(list(progress(attempts, ledger))))


def _calls(ledger: Ledger) -> Table:
    table = _table("model calls", "agent", "model", "calls", "tokens in", "tokens out", "cost", "waited")
    rows = [(agent, ledger.of(agent)) for agent in ledger.agents]
    for name, part in [*rows, ("total", ledger)]:
        usage = part.usage
        table.add_row(
            name,
            plain(", ".join(map(_short, part.models)) if name != "total" else ""),
            str(len(part.calls)),
            str(usage.input_tokens),
            str(usage.output_tokens),
            words.price(usage),
            words.clock(part.seconds),
        )
    return table


def _short(model: str) -> str:
    """Return a model's name without its folder: some servers name a model by its file."""
    return model.rpartition("/")[2] or model


def _progress(rows: Sequence[RunProgress]) -> Table:
    table = _table("speedup against cost and time", "after attempt", "best", "speedup over eager", "cost", "time")
    for row in rows:
        table.add_row(
            str(row.attempt),
            "" if row.best is None else f"attempt {row.best}",
            _speedup(row),
            words.price(row.usage),
            words.clock(row.seconds),
        )
    return table


def _speedup(row: RunProgress) -> str:
    if row.best is None:
        return "nothing correct yet"
    if row.speedup is None:
        return "not timed"
    return times(row.speedup) if row.doubt is None else f"not measured ({row.speedup.median:.2f}x seen)"


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=plain(title, "table.title"), title_justify="left", expand=False)
    for name in columns:
        table.add_column(name, no_wrap=name == "agent")
    return table
