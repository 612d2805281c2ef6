"""Images that go with a message to a model: which files are accepted, and what identifies one."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer

from kforge import reading
from kforge.errors import InputError
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_IMAGES = 8
MOST_BYTES = 5 * 2**20
"""Largest image in bytes; providers refuse larger ones."""
_KINDS = (
    ("image/png", "png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", "jpg", re.compile(rb"\xff\xd8\xff")),
    ("image/webp", "webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
)
"""The accepted kinds: media type, suffix of a file, and the bytes at the beginning."""
_SUFFIXES = {media_type: suffix for media_type, suffix, _ in _KINDS}
_MEDIA_TYPES = {suffix: media_type for media_type, suffix in _SUFFIXES.items()}
_NAME = re.compile(r"(?P<sha256>[0-9a-f]{64})\.(?P<suffix>png|jpg|webp)")


class Image(Record):
    """One image. A record on disk names it by its digest; the bytes are in a file of their own."""

    media_type: Literal["image/png", "image/jpeg", "image/webp"]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    measured: bool = False
    """Whether it shows measurements, which differ from run to run. Then it is not part of a request's identity."""
    content: bytes = Field(default=b"", exclude=True, repr=False)

    @classmethod
    def of(cls, content: bytes, *, measured: bool = False) -> Self:
        """Return the image with these bytes. Raises ValueError, with a message for users, if it is too large or of
        another kind."""
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES / 2**20:g} MiB")
        kind = next((media_type for media_type, _, begin in _KINDS if begin.match(content)), None)
        if kind is None:
            raise ValueError("it is not a PNG, JPEG or WebP image")
        return cls.model_validate(
            {
                "media_type": kind,
                "sha256": hashlib.sha256(content).hexdigest(),
                "measured": measured,
                "content": content,
            }
        )

    @property
    def suffix(self) -> str:
        return _SUFFIXES[self.media_type]

    @property
    def name(self) -> str:
        """Return the name of the file that keeps the image in a run."""
        return f"{self.sha256}.{self.suffix}"


def read_images(paths: Sequence[Path]) -> tuple[Image, ...]:
    """Read the images that a user names; the same image twice counts once.

    Raises InputError for a file that cannot be read, that is too large or of another kind, and for too many of them.
    """
    if len(paths) > MOST_IMAGES:
        raise InputError(f"at most {MOST_IMAGES} images can be given, not {len(paths)}")
    found: dict[str, Image] = {}
    for path in paths:
        try:
            image = Image.of(reading.content(path, most=MOST_BYTES))
        except OSError as error:
            raise InputError(f"cannot read {path}: {reading.reason(error)}") from error
        except ValueError as error:
            raise InputError(f"cannot use {path}: {error}") from None
        found.setdefault(image.sha256, image)
    return tuple(found.values())


def _named(value: object) -> object:
    """Return the images that a text of file names stands for, without their bytes. Raises ValueError if a name is not
    that of an image, or there are too many."""
    if not isinstance(value, str):
        return value
    names = [_NAME.fullmatch(part) for part in value.split()]
    if len(names) > MOST_IMAGES or None in names:
        raise ValueError(f"it must be the names of at most {MOST_IMAGES} images of the run, each its digest and suffix")
    return [{"media_type": _MEDIA_TYPES[name["suffix"]], "sha256": name["sha256"]} for name in names if name]


def _names(images: tuple[Image, ...]) -> str:
    return " ".join(image.name for image in images)


NamedImages = Annotated[tuple[Image, ...], BeforeValidator(_named), PlainSerializer(_names, return_type=str)]
"""Images as an option of a run, which is written as the names of their files."""
