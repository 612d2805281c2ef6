"""The command line: the only room that prints.

Exit status: 0 `forge` found a correct program that is not slower than the original, `eval` found the candidate correct,
`verify` agrees; 1 it did not (no kernel, nothing correct, or slower), or a sanitizer found something; 2 wrong usage or
bad input with one clear line; 3 `verify` cannot compare, because a measurement was disturbed or is of another device;
75 waiting for replies; 130 interrupted (resumable).
"""

from __future__ import annotations

import sys

from kforge.cli.encoding import spell_unprintable
from kforge.errors import InputError, KforgeError, WaitingForReplies

NOT_FOUND, BAD_INPUT, NOT_COMPARABLE, WAITING, INTERRUPTED = 1, 2, 3, 75, 130


def main() -> None:
    """The entry point `kforge`."""
    spell_unprintable()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out one command; the exit status. Errors become one line on standard error."""
    try:
        from kforge.cli.app import app

        return int(app(arguments, standalone_mode=False) or 0)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except WaitingForReplies as waiting:
        return _say(str(waiting), WAITING)
    except InputError as error:
        return _say(str(error), BAD_INPUT)
    except KforgeError as error:
        return _say(str(error), NOT_FOUND)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        return NOT_FOUND
    except Exception as error:
        # typer's usage errors; some of its versions carry a click of their own, so they are known by their shape
        if not hasattr(error, "format_message"):
            raise
        return _say(error.format_message(), BAD_INPUT)


def _say(message: str, status: int) -> int:
    text = "kforge: " + " ".join(message.split())
    if sys.stderr.isatty():  # no word is cut at the edge of a terminal; elsewhere it is one line
        import shutil

        from kforge.cli.lines import wrapped

        text = wrapped(text, shutil.get_terminal_size().columns)
    print(text, file=sys.stderr)
    return status
