"""`export`: writes the best program of a run so that it works without kforge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge import export as exports
from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import say
from kforge.cli.trusting import consent, hold_to_own
from kforge.platforms import find
from kforge.store import RunFolder
from kforge.store.trust import admit_platform_dirs, folders_of
from kforge.visible import command

if TYPE_CHECKING:
    from kforge.cli.options import Permission


def export(name: str, folder: Path, form: str, allowed: Permission, *, json: bool) -> int:
    """Export the best program of a run, and return the exit status.

    `allowed` is what a run made by others may do: `trust` accepts its program, and the code of platforms that it names
    runs only from `platform_dirs`. Raises NothingCorrect if the run has no correct program, and InputError for a bad
    argument or for a run made by others that the user does not permit.
    """
    chosen = settings.load()
    run = RunFolder.find(chosen.runs, name)
    hold_to_own(run, chosen.signing_key, trust=allowed.trust)
    folders = folders_of(run.header.options.get("platform_dirs", ""))
    if not run.is_signed(chosen.signing_key):
        admit_platform_dirs(folders, str(run.path), consent(None, allowed))
    platform = find(run.header.platform, (*chosen.platform_dirs, *map(Path, folders)))
    solution = exports.Solution.of(run, platform)
    written = exports.export(solution, folder, form)
    if json:
        documents.print_json({"folder": str(folder), "format": form, "files": [str(path) for path in written]})
        return 0
    say(f"{len(written)} files in {folder}: {solution.problem.name} on {platform.name} as {form}")
    if form == "package":
        say(f"to test it: cd {command(str(folder))} && python -m pytest")
    return 0
