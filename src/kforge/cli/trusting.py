"""What a user says about runs, suites and receipts of others: by flags, or as the answer to a question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kforge import problems, settings
from kforge.cli.output.lines import note, say
from kforge.store import Consent

if TYPE_CHECKING:
    from kforge.cli.options import Permission
    from kforge.records import Problem

NOT_OURS = "not signed by you"
"""Said of a run or suite whose header, attempts or outcome others may have written."""


def consent(theirs: Problem | None, allowed: Permission) -> Consent:
    """`theirs`: the problem of the run or receipt, whose overrides are written into the user's own file as well.

    Raises ProblemError when that file is no problem, or does not have what is overridden.
    """
    overrides = [f"{name}={value}" for name, value in theirs.overrides] if theirs is not None else []
    return Consent(
        trust=allowed.trust,
        problem=problems.load(allowed.problem, overrides) if allowed.problem is not None else None,
        unsafe=allowed.unsafe,
        platform_dirs=tuple(allowed.platform_dirs or ()),
        models=frozenset(name for name in (allowed.model, allowed.analyst) if name),
        ask=ask,
        to_read=settings.load().state / "to-read",
    )


def whose(*, is_ours: bool) -> dict[str, bool]:
    """What `--json` says of a run or suite that the user did not make, or not all of it."""
    return {} if is_ours else {"signed": False}


def say_whose(*, is_ours: bool) -> None:
    """The same in words, after what such a run or suite claims."""
    if not is_ours:
        say(f"{NOT_OURS}: not all of this was made by you on this machine; `kforge verify` measures it again")


def ask(question: str) -> bool:
    """Put a question to the user at a terminal; anything but yes is no, and so is the lack of a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
