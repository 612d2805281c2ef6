"""Every pair of platforms has a mapping of their terms."""

from __future__ import annotations

import itertools

import pytest

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms.concepts import Concepts, counterparts

WRITERS = [each for each in platforms.available() if isinstance(each, platforms.Platform) and each.name != "null"]


@pytest.mark.parametrize("platform", WRITERS, ids=lambda each: each.name)
def test_every_platform_with_kernels_names_what_all_have(platform: platforms.Platform) -> None:
    named = platform.manifest.concepts
    assert all((named.launch, named.grid, named.memory, named.scalars, named.tails, named.functions)), named


@pytest.mark.parametrize(("there", "here"), list(itertools.permutations(WRITERS, 2)), ids=lambda each: each.name)
def test_a_mapping_lists_all_that_the_source_has(there: platforms.Platform, here: platforms.Platform) -> None:
    listed = counterparts(there.manifest, here.manifest)
    assert len(listed) == sum(map(bool, there.manifest.concepts.model_dump().values()))
    assert {each.here for each in listed} <= {"", *here.manifest.concepts.model_dump().values()}


def test_an_unknown_concept_is_one_clear_line(tmp_path) -> None:
    folder = tmp_path / "loom"
    (folder / "example").mkdir(parents=True)
    null = platforms.find("null").folder
    for name in ("platform.toml", "example/reference.py", "example/kernel.py"):
        (folder / name).write_text((null / name).read_text())
    with (folder / "platform.toml").open("a") as manifest:
        manifest.write('\n[concepts]\nshuttle = "a word that no table has"\n')
    with pytest.raises(PlatformError, match=r"field .concepts\.shuttle. is not known; remove it"):
        platforms.load_folder(folder)


def test_concepts_are_described() -> None:
    assert all(field.description for field in Concepts.model_fields.values())
