"""`new-platform`: writes the folder of a new platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import platforms, settings
from kforge.cli.output import documents
from kforge.cli.output.lines import say
from kforge.errors import PlatformError
from kforge.platforms.new_platform import create
from kforge.visible import command

if TYPE_CHECKING:
    from pathlib import Path


def new_platform(name: str, into: Path | None, packages: list[str], *, json: bool) -> int:
    """Write the files of a new platform, print their names, and return the exit status.

    The folder is among the user's own platforms, where every command finds it, or in `into`. Raises PlatformError if
    the name is taken or the files cannot be written.
    """
    chosen = settings.load()
    place = (into if into is not None else chosen.user_platforms) / name
    taken = [each for each in platforms.available(chosen.platform_dirs) if each.name == name]
    if taken:
        raise PlatformError(f"there is a platform named '{name}' already; choose another name")
    files = create(name, place, packages, command("--platform-dir", place) if into is not None else "")
    if json:
        documents.print_json({"platform": name, "folder": str(place), "files": [str(file) for file in files]})
        return 0
    for file in files:
        say(f"wrote {file}")
    check = ("kforge", "doctor", name, *(("--platform-dir", place) if into is not None else ()))
    say(f"it works as it is, with plain PyTorch: {command(*check)}")
    say("next: put your kernel into example/kernel.py, and say in platform.toml how programs look")
    return 0
