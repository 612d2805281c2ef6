"""Makes the page of a profile from files that were exported on another machine.

Numbers that the files do not contain are not guessed: without the number of calls there is no time per call, and
without a wall clock there is no idle share. The roofline is shown if a problem is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.bottleneck import name_bottleneck
from kforge.profiling.digest import page, roof
from kforge.profiling.wording import amount, time
from kforge.records import ImportedProfile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.profiling.exports import Export
    from kforge.records import Roofline, Workload

MAX_DRIVER_CALLS = 3
"""Most functions of the driver that the notes on a page name."""
_WAITING = ("Synchronize", "Wait", "Query")
"""Parts of the names of functions that wait for the device. Their time says nothing about the host."""


def digest_of_export(
    export: Export, *, calls: int = 0, roofline: Roofline | None = None, workload: Workload | None = None
) -> ImportedProfile:
    """Return the profile with its page. `calls` is the number of recorded calls of the module; 0 if it is unknown."""
    spots = export.hot_spots(calls or 1)
    # The time in which the device was busy. Idle time is not in the files.
    seconds = sum(spot.seconds for spot in spots) if calls and spots else None
    bottleneck = name_bottleneck(hot_spots=spots, kernels=export.kernels, seconds=seconds, roofline=roofline)
    told = list(notes(export, calls or 1))
    if roofline is not None and not export.device:
        told.append("The export does not say which device it is of; the peaks are of the device here")
    facts = [("Imported from", export.tool + (f", on {export.device}" if export.device else ""))]
    if bottleneck:
        facts.append(("Bottleneck", bottleneck))
    if seconds is not None:
        facts.append(("Device time a call", f"{time(seconds)}, over {calls} recorded call{'s' if calls > 1 else ''}"))
    elif spots:
        facts.append(("Device time", f"{time(sum(spot.seconds for spot in spots))} in all that was recorded"))
    if roofline is not None and workload is not None:
        facts += roof(seconds, roofline, workload)
    of_what = "device time a call" if calls else "device time of all that was recorded"
    return ImportedProfile(
        tool=export.tool,
        hot_spots=spots,
        digest_text=page(facts, spots, of_what, export.kernels, told),
        kernels=export.kernels,
        bottleneck=bottleneck,
        seconds=seconds,
        roofline=roofline,
    )


def notes(export: Export, calls: int) -> Iterator[str]:
    """Yield notes about the host's launch costs, and about copies."""
    told = sorted(export.driver_calls, key=lambda row: -row.amount)
    working = [row for row in told if row.count and not any(word in row.name for word in _WAITING)]
    for row in working[:MAX_DRIVER_CALLS]:
        yield f"{row.name}: {row.count / calls:.3g} times, {time(row.amount / row.count)} of the host's time each"
    for row in export.sizes:
        yield f"{row.name}: {amount(row.amount / calls, 'B')} in {row.count / calls:.3g} operations"
