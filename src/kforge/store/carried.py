"""Files that a run keeps in its folder so that it can be resumed and moved: a live module's weights, and images.

The header names each file by its digest, and the header is signed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge import durable
from kforge.errors import RunError
from kforge.models import Image
from kforge.models.images import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Problem
    from kforge.store.records import Header

IMAGES = "images"
LONGEST_SHOWN = 60
"""Most characters of a wrong name that an error quotes."""


def shown(name: str) -> str:
    """Return a name that a user gave, in quotes, on one line, and shortened if it is long."""
    return ascii(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...")


def carry_images(images: Sequence[Image], path: Path) -> None:
    """Write images into the folder of a new run. Raises RunError if one cannot be written."""
    if images:
        durable.make_folder(path / IMAGES)
    for image in images:
        durable.write(path / IMAGES / image.name, image.content)


def find_images(named: Sequence[Image], path: Path) -> tuple[Image, ...]:
    """Return the images of a run with their bytes. `named` are the images that its options name, without bytes.

    Raises RunError if an image is missing, is a symbolic link, or differs from the one that the options name.
    """
    return tuple(_find_image(each, path) for each in named)


def _find_image(named: Image, path: Path) -> Image:
    place = path / IMAGES / named.name
    durable.refuse_links(place, path)
    try:
        found = Image.of(durable.read(place, most=MOST_BYTES))
    except OSError as error:
        raise RunError(f"run {path.name} is damaged: cannot read {place}: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"run {path.name} is damaged: {place}: {error}") from None
    if found.name != named.name:
        raise RunError(f"run {path.name} is damaged: {place} is not the image that the run was begun with")
    return found


def carry_state(header: Header, path: Path) -> Header:
    """Copy a live module's weights into the run's folder, so that the run can be moved. Returns the header with the new
    path."""
    if header.problem.state_path is None:
        return header
    durable.copy(Path(header.problem.state_path), path / "state.pt")
    return _with_state(header, "state.pt")


def find_state(header: Header, path: Path) -> Header:
    """Return the header with the absolute path of the weights, because other processes have other working directories.

    Raises RunError if the weights are not a file in the folder, or if only one of path and digest is given.
    """
    name = header.problem.state_path
    if (name is None) != (header.problem.state_digest is None):
        raise RunError(f"run {header.id} is damaged: its problem needs both the weights and their digest, or neither")
    if name is None:
        return header
    state = path.absolute() / name
    if Path(name).name != name or state.is_symlink():
        raise RunError(f"run {header.id} is damaged: its weights must be a file of its folder, not {shown(name)}")
    if not state.is_file():
        raise RunError(f"run {header.id} is damaged: {state} is missing")
    return _with_state(header, str(state))


def _with_state(header: Header, state_path: str) -> Header:
    problem: Problem = header.problem.model_copy(update={"state_path": state_path})
    return header.model_copy(update={"problem": problem})
