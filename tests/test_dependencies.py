"""`make` installs the same versions for everybody: every direct dependency is pinned."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", each) for each in requirements)
    return {name[0].lower().replace("_", "-") for name in found if name} - {"kforge"}


def test_every_direct_dependency_is_pinned(root: Path) -> None:
    said = tomllib.loads((root / "pyproject.toml").read_text())
    project = said["project"]
    wanted = names([*project["dependencies"], *said["build-system"]["requires"]])
    for extra in project["optional-dependencies"].values():
        wanted |= names(extra)
    lines = [line for line in (root / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line) for line in lines), lines
    assert {line.partition("==")[0] for line in lines} == wanted
