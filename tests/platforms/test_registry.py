import subprocess
import sys

import pytest

import kforge.platforms
from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import Adapter, BrokenPlatform


def test_all_names_are_there():
    assert all(hasattr(kforge.platforms, name) for name in kforge.platforms.__all__)


def test_the_built_in_platforms_are_there():
    assert {"cpu", "cuda", "null", "triton"} <= {platform.name for platform in platforms.available()}
    assert not [platform for platform in platforms.available() if isinstance(platform, BrokenPlatform)]


def test_listing_and_probing_imports_no_torch():
    program = """
import sys
from kforge import platforms
for platform in platforms.available():
    platform.adapter.probe(), platform.adapter.versions(), platform.adapter.environment()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_and_a_folder_of_folders_are_searched(make_platform, tmp_path):
    one = make_platform("one", folder="alone/one")
    make_platform("two", folder="many/two")
    make_platform("three", folder="many/three")
    (tmp_path / "many" / "not-a-platform").mkdir()
    extra = [one, tmp_path / "many"]
    for name in ("one", "two", "three", "cpu"):
        assert platforms.find(name, extra).name == name
    assert platforms.find("two", extra).example == platforms.Example("reference", "kernel")


def test_an_unknown_name_lists_what_there_is():
    names = "cpu, cuda, .*metal, null, .*triton"
    with pytest.raises(PlatformError, match=rf"^no platform named 'abakus'; there are: {names}"):
        platforms.find("abakus")


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(PlatformError, match=f"^no such platform folder: {tmp_path}/nowhere$"):
        platforms.available([tmp_path / "nowhere"])


def test_a_broken_platform_is_listed_and_stops_nothing(make_platform, tmp_path):
    make_platform("good")
    make_platform("bad", manifest="name = '{name}'")
    (make_platform("hollow") / "example" / "kernel.py").unlink()
    found = {platform.name: platform for platform in platforms.available([tmp_path])}
    assert isinstance(found["good"], platforms.Platform)
    assert found["bad"].reason.startswith(f"{tmp_path}/bad/platform.toml: field 'title' is missing")
    assert found["hollow"].reason == (
        f"{tmp_path}/hollow/example/kernel.py: the single-shot example cannot be read: No such file or directory"
    )
    assert platforms.find("good", [tmp_path]).name == "good"
    with pytest.raises(PlatformError, match="field 'title' is missing"):
        platforms.find("bad", [tmp_path])


def test_two_platforms_of_one_name_are_an_error_that_names_both(make_platform, tmp_path):
    first, second = make_platform("twin", folder="a"), make_platform("twin", folder="b")
    message = f"two platforms have the name 'twin': {first} and {second}; rename one"
    with pytest.raises(PlatformError) as caught:
        platforms.find("twin", [tmp_path])
    assert str(caught.value) == message
    assert platforms.find("cpu", [tmp_path]).name == "cpu"
    mine = make_platform("cpu", folder="mine")
    with pytest.raises(PlatformError, match="two platforms have the name 'cpu'"):
        platforms.find("cpu", [mine])


def test_a_folder_found_twice_is_one_platform(make_platform, tmp_path):
    folder = make_platform("one")
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert platforms.find("one", [folder, tmp_path, link]).folder == folder


def test_an_adapter_of_its_own_is_loaded_when_used(make_platform, tmp_path):
    source = """
from __future__ import annotations
from dataclasses import dataclass
from kforge import platforms
@dataclass
class Fact:
    value: int
class Adapter(platforms.Adapter):
    def environment(self):
        return {"FACT": str(Fact(3).value), "NAME": self.manifest.name}
"""
    make_platform("plain")
    platform = platforms.load_folder(make_platform("own", adapter=source))
    assert platform.adapter.environment() == {"FACT": "3", "NAME": "own"}
    assert platform.adapter is platform.adapter
    assert type(platforms.find("plain", [tmp_path]).adapter) is Adapter


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise ValueError('two\\nlines')", "cannot be loaded: ValueError: two lines"),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        ("class Adapter: pass", "must define a class Adapter derived from kforge.platforms.Adapter"),
        ("from kforge.platforms import Adapter", "must define a class Adapter derived from kforge.platforms.Adapter"),
        ("x = ", "cannot be loaded: SyntaxError: invalid syntax"),
    ],
)
def test_a_broken_adapter_is_one_line(make_platform, source, problem):
    platform = platforms.load_folder(make_platform("own", adapter=source))
    with pytest.raises(PlatformError) as caught:
        _ = platform.adapter
    assert str(caught.value).startswith(f"{platform.folder}/adapter.py: {problem}")
    assert "\n" not in str(caught.value)
