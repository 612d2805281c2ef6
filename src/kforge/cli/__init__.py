"""The command line: the only room that prints.

Exit status: 0 `forge` found a correct program that is not slower than the original, `eval` found the candidate correct,
`verify` agrees; 1 it did not (no kernel, nothing correct, or slower), or a sanitizer found something; 2 nothing was
decided: wrong usage or bad input with one clear line, an evaluator or a provider that failed (a run can be resumed), or
another failure of kforge itself, whose traceback is in a file; 3 `verify` cannot compare, because a measurement was
disturbed or is of another device; 75 waiting for replies; 130 interrupted (resumable).
"""

from __future__ import annotations

import errno
import secrets
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from kforge.cli import inherited
from kforge.cli.output.encoding import spell_unprintable
from kforge.errors import KforgeError, NothingCorrect, WaitingForReplies

LONGEST_REASON = 300
"""Most characters of an unexpected error's message that are shown."""
USERS_OWN = frozenset(
    {errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT, errno.EROFS}
)
"""System errors about a name, a folder or a disk, which the user can fix."""
NOT_FOUND, BAD_INPUT, NOT_COMPARABLE, WAITING, INTERRUPTED = 1, 2, 3, 75, 130


def main() -> None:
    """The entry point `kforge`."""
    inherited.repair()
    spell_unprintable()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status. Errors become one line on standard error."""
    try:
        from kforge.cli.app import app

        return int(app(arguments, standalone_mode=False) or 0)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except WaitingForReplies as waiting:
        return _say(str(waiting), WAITING)
    except NothingCorrect as error:
        return _say(str(error), NOT_FOUND)
    except KforgeError as error:  # bad input, or an evaluator or a provider that failed: nothing was decided
        return _say(str(error), BAD_INPUT)
    except BrokenPipeError:  # the reader of our output has closed the pipe, as `head` does
        sys.stderr.close()
        return NOT_FOUND
    except OSError as error:
        if error.errno not in USERS_OWN:
            return _say(f"kforge failed: {_described(error)}", BAD_INPUT)
        return _say(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror), BAD_INPUT)
    except Exception as error:
        # typer's usage errors; some versions of typer bundle their own click, so the errors are recognised by their
        # attributes
        if hasattr(error, "format_message"):
            return _say(_usage(error), BAD_INPUT)
        return _say(f"kforge failed: {_described(error)}", BAD_INPUT)


def _usage(error: Any) -> str:
    """Return the message of one of typer's usage errors. Newer versions of typer quote pydantic about a wrong value."""
    from pydantic import ValidationError

    from kforge.records.faults import first_fault

    if isinstance(error.__cause__, ValidationError):
        error.message = first_fault(error.__cause__).reason
    return str(error.format_message())


def _described(error: Exception) -> str:
    """Describe an unexpected exception in one line, and write its traceback into a log file."""
    from kforge import durable, settings

    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}.log"
    said = f"{type(error).__name__}: {str(error)[:LONGEST_REASON]}"
    try:
        file = settings.load().state / "failures" / name
        durable.make_folder(file.parent)
        durable.write(file, "".join(traceback.format_exception(error)), mode=0o600)
    except Exception:  # a second failure must not hide the first
        return f"{said} (and its traceback could not be kept)"
    return f"{said} (traceback in {file})"


def _say(message: str, status: int) -> int:
    from kforge.cli.output.lines import note

    note(" ".join(message.split()))
    return status
