"""Decides what may be used of a run, a suite or a receipt that this user did not make on this machine.

The problem of such a run is code that would run in the referee with the user's rights. Its options may switch the
sandbox off, name folders of platforms whose adapters would be imported, and name models to which prompts would be sent
with the user's API key. If this user's signature is valid (`kforge.store.signature`), all of this is allowed. Otherwise
the user must consent to each.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import durable
from kforge.errors import RunError
from kforge.store.record_files import holds
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kforge.records import Problem

AT_HOME = frozenset({"builtin", "exchange"})
"""Models that send nothing over the network and read nothing outside the run."""
MOST_TO_READ = 1000
"""Most problems of a suite that are written to files for the user to read."""


@dataclass(frozen=True)
class Consent:
    """What a user allows for a run, suite or receipt that this user did not make on this machine."""

    trust: bool = False
    """Whether its problem may run with the user's rights."""
    problem: Problem | None = None
    """The user's own copy of the problem. If the run or receipt has the same problem, it may run."""
    unsafe: bool = False
    platform_dirs: tuple[Path, ...] = ()
    models: frozenset[str] = frozenset()
    ask: Callable[[str], bool] = lambda _: False
    """Asks the user a question and returns the answer. By default the answer is no, for programs that cannot ask."""
    to_read: Path | None = None
    """The folder into which sources made by others are written, so that the user can read the code that would run."""


def admit_problem(problem: Problem, origin: str, consent: Consent, readable: Path | None = None) -> None:
    """Raise RunError unless the user allows this problem to run. It is of a run or receipt that others made.

    `readable` is a file that contains exactly its source. If it is None, such a file is written.
    """
    if consent.trust:
        return
    if consent.problem is not None:
        if consent.problem.digest == problem.digest:
            return
        raise RunError(f"the problem in {origin} differs from the file given with --problem")
    _admit_code(origin, "its problem", consent, readable or _written_out({problem.name: problem}, consent))


def admit_suite(problems: Mapping[str, Problem], origin: str, consent: Consent) -> None:
    """Raise RunError unless the user allows the problems of a suite that others made to run."""
    if problems and not consent.trust:
        if len(problems) > MOST_TO_READ:
            raise RunError(
                f"{origin} was not made by you on this machine, and its {len(problems)} problems would run with your "
                f"rights; more than {MOST_TO_READ} are not written out to be read: give --trust if you know them"
            )
        _admit_code(origin, f"its {len(problems)} problems", consent, _written_out(problems, consent))


def admit_options(options: Mapping[str, object], platform_dirs: tuple[str, ...], origin: str, consent: Consent) -> None:
    """Raise RunError for an option that gives a run made by others more rights. The message names the flag that allows
    it."""
    foreign = f"{origin} was not made by you on this machine, and"
    if options.get("unsafe", False) is not False and not consent.unsafe:
        raise RunError(f"{foreign} asks to run programs without a sandbox; if you want that, give --unsafe")
    admit_platform_dirs(platform_dirs, origin, consent)
    for option, flag in (("model", "-m"), ("analyst", "--analyst")):
        name = str(options.get(option, ""))
        if name not in AT_HOME and name not in consent.models:
            raise RunError(f"{foreign} asks the model {name}; if you want that, give {command(flag, name)}")


def admit_platform_dirs(folders: tuple[str, ...], origin: str, consent: Consent) -> None:
    """Raise RunError for a folder of platforms that a run made by others names and that the user does not allow."""
    allowed = {_place(folder) for folder in consent.platform_dirs}
    for folder in folders:
        if _place(Path(folder)) not in allowed:
            raise RunError(
                f"{origin} was not made by you on this machine, and names a folder of platforms whose code would run; "
                f"if you want that, give {command('--platform-dir', folder)}"
            )


def folders_of(joined: object) -> tuple[str, ...]:
    """Return the platform folders in an option of a run, in which they are separated as in PATH."""
    return tuple(part for part in str(joined).split(os.pathsep) if part)


def _admit_code(origin: str, what: str, consent: Consent, readable: Path | None) -> None:
    risk = f"{origin} was not made by you on this machine, and {what} would run with your rights"
    where = f" The code is in {readable}." if readable is not None else ""
    if not consent.ask(f"{risk}.{where} Run it?"):
        flag = "--problem FILE with the same problem, or " if what == "its problem" else ""
        raise RunError(f"{risk}; read {readable or 'it'} first, then give {flag}--trust")


def _written_out(problems: Mapping[str, Problem], consent: Consent) -> Path | None:
    """Write the sources exactly as they would run, and return the file, or the folder if there are several.

    Returns None if `consent` has no folder for them. Raises RunError if they cannot be written.
    """
    if consent.to_read is None:
        return None
    digests = "".join(problem.digest for problem in problems.values())
    folder = consent.to_read / hashlib.sha256(digests.encode()).hexdigest()[:16]
    durable.make_folder(folder)
    for number, (name, problem) in enumerate(problems.items()):
        slug = re.sub(r"[^A-Za-z0-9_]+", "-", name)[:40].strip("-") or "problem"
        path = folder / f"{number:03d}-{slug}.py"
        if not holds(path, problem.source):
            durable.write(path, problem.source, shared=True)  # `shared` saves a scan of the folder for each file
    return path if len(problems) == 1 else folder


def _place(folder: Path) -> str:
    return os.path.realpath(folder)
