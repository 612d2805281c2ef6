"""Writes the folder of a new platform from templates. The platform works at once: its example is plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from kforge.errors import PlatformError
from kforge.platforms.manifest import Name, Package

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEMPLATES = Path(__file__).parent / "template"
_FILES = {
    "platform.toml": "platform.toml.template",
    "example/reference.py": "reference.py.template",
    "example/kernel.py": "kernel.py.template",
    "README.md": "README.md.template",
}


def create(name: str, folder: Path, packages: Sequence[str] = (), option: str = "") -> list[Path]:
    """Write the files of a platform into a new folder, and return their paths.

    `option` is the command-line option that makes kforge find the folder; it goes into the README. Raises PlatformError
    for an invalid name, and if the folder exists or cannot be written.
    """
    _check(Name, name, "a platform's name has lower-case letters, digits, - and _, and begins with a letter")
    for package in packages:
        _check(Package, package, "give the name under which the package is imported")
    required = ", ".join(f'"{each}"' for each in dict.fromkeys(("torch", *packages)))
    words = {"@NAME@": name, "@REQUIRES@": required, "@OPTION@": f" {option}" if option else ""}
    written = []
    try:
        folder.mkdir(parents=True)
        for file, template in _FILES.items():
            text = (_TEMPLATES / template).read_text(encoding="utf-8")
            for mark, word in words.items():
                text = text.replace(mark, word)
            path = folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except FileExistsError:
        raise PlatformError(f"{folder} already exists; choose another name, or another folder with --into") from None
    except OSError as error:
        raise PlatformError(f"{folder}: cannot be written: {error.strerror}") from error
    return written


def _check(kind: Any, value: str, rule: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        raise PlatformError(f"'{value}' is not valid: {rule}") from None
