"""The schema of `platform.toml`, in which a platform describes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints, ValidationError

from kforge import reading
from kforge.errors import PlatformError
from kforge.platforms.concepts import Concepts
from kforge.records import Record
from kforge.records.faults import plain_reason

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_FILE = "platform.toml"

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
Package = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
KernelLanguage = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9+._-]*)?$")]
Device = Annotated[str, StringConstraints(pattern=r"^[a-z]+(:\d+)?$")]


class Tool(Record):
    """A part of the toolchain. One of its commands is enough; the first one found is used."""

    commands: tuple[Text, ...] = Field(min_length=1)
    purpose: Text
    install: Text | None = None
    """The command that installs it. None if there is no command that works on most machines."""


class Manifest(Record):
    """A platform's manifest: all facts about the platform that are data and not code."""

    name: Name
    title: Text
    language: Text
    fence: tuple[Text, ...] = Field(min_length=1)
    """Names that a model may put on the code fence of its answer. Prompts ask for the first one."""
    device: Device
    """torch's device of the tensors that a program gets and returns."""
    facts: tuple[Text, ...] = Field(min_length=1)
    """Lines for the prompt: what programs look like on this platform, what is available, and what the limits are."""
    hints: tuple[Text, ...] = ()
    """Lines for the prompt: what usually makes a program faster on this platform."""
    kernels: KernelLanguage = ""
    """The language in which the smith writes kernels for this platform: one that ships with kforge, one of an
    installed package, or the class in `language.py` beside this file. If it is empty, the smith's programs use
    torch's operators."""
    builtin_speedup: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Measured speedup over eager mode of the smith's programs on this platform, as the geometric mean over a suite. If
    the user names no platform, the smith takes the fastest of the platforms that share a device."""
    preference: int = 0
    """Rank of this platform if the user names none. The highest number wins among platforms that are otherwise equal
    (`registry.at_hand`)."""
    toolchain: tuple[Tool, ...] = ()
    requires: tuple[Package, ...] = ()
    """Required Python packages, by the name under which they are imported."""
    install: Text | None = None
    """The command that installs the packages in `requires`."""
    concepts: Concepts = Concepts()
    """This platform's names for concepts that all platforms share, to translate programs between platforms."""
    inherits: tuple[Variable, ...] = ()
    """Names of variables of the user's environment that workers get as well, such as the chosen device or a driver's
    folder."""


def read_manifest(file: Path) -> Manifest:
    """Return the checked content of a `platform.toml`.

    Raises PlatformError, with one line that names the file, the field and the problem.
    """
    try:
        data = reading.toml(reading.text(file, most=reading.LARGEST_MANIFEST))
    except OSError as error:
        raise PlatformError(f"{file}: cannot be read: {reading.reason(error)}") from error
    except UnicodeDecodeError as error:
        raise PlatformError(f"{file}: is not UTF-8 text") from error
    except ValueError as error:
        raise PlatformError(f"{file}: is not valid TOML: {error}") from error
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        raise PlatformError(f"{file}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    field = ".".join(str(part) for part in problems[0]["loc"])
    match problems[0]["type"]:
        case "missing":
            problem = f"field '{field}' is missing"
        case "extra_forbidden":
            problem = f"field '{field}' is not known; remove it"
        case _:
            problem = f"field '{field}' {plain_reason(problems[0])}"
    return problem + (f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else "")
