"""How fast `torch.compile` is, measured once per problem and device and kept by content hash.

Only the ratio to eager is kept: every evaluation measures eager anew beside the candidate, so a machine that is slower
today is slower for all of them, and the candidate's speedup over `torch.compile` follows from two paired ratios.
"""

from __future__ import annotations

import json

from kforge.records import Record


class CompileBaseline(Record):
    """Paired log-ratios log(eager seconds / compiled seconds), or why there are none."""

    identity: str
    log_ratios: tuple[float, ...] = ()
    seconds: float = 0.0
    unavailable: str = ""
    doubt: str | None = None
    """Why this measurement is used once and not kept."""


def identity(mode: str, *, torch_version: str, threads: int, precision: str) -> str:
    """What exactly a baseline is, for the receipt; on some devices it may compute as the declared precision allows."""
    return json.dumps({"mode": mode, "torch": torch_version, "threads": threads, "precision": precision})
