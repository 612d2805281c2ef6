"""Finds out whether the user trusts runs, suites and receipts that others made: by command-line flags, or by a
question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kforge import problems, settings
from kforge.cli.output.lines import note, say
from kforge.errors import RunError
from kforge.store import Consent

if TYPE_CHECKING:
    from kforge.cli.options import Permission
    from kforge.records import Problem
    from kforge.store import Key, RunFolder

NOT_OURS = "not signed by you"
"""Shown for a run or suite whose header, attempts or outcome others may have written."""


def consent(theirs: Problem | None, allowed: Permission) -> Consent:
    """Return what the user permits. `theirs` is the problem of the run or receipt; its overrides are also applied to
    the user's own file.

    Raises ProblemError if that file is not a problem, or lacks an overridden name.
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


def hold_to_own(run: RunFolder, key: Key, *, trust: bool) -> None:
    """Ignore or refuse parts of a run that the user did not make, from now on. With `trust`, all parts are accepted.

    Raises RunError for a run that others made and that is not trusted.
    """
    if not trust and not run.hold_to(key):
        raise RunError(
            f"{run.path} was not made by you on this machine; read its problem.py and best.py first, then add --trust"
        )


def whose(*, is_ours: bool) -> dict[str, bool]:
    """Return the keys of `--json` for a run or suite that the user did not make, or not completely."""
    return {} if is_ours else {"signed": False}


def say_whose(*, is_ours: bool) -> None:
    """Print a warning after the claims of a run or suite that the user did not make."""
    if not is_ours:
        say(f"{NOT_OURS}: not all of this was made by you on this machine; `kforge verify` measures it again")


def ask(question: str) -> bool:
    """Ask the user at a terminal. Any answer but yes is no; without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
