import pytest

from kforge.errors import PlatformError
from kforge.platforms.manifest import Manifest, read_manifest

WHOLE = """
name = "loom"
title = "Loom"
language = "Thread"
fence = ["python", "py"]
device = "cpu"
facts = ["It weaves."]
hints = ["Weave tighter."]
requires = ["torch"]
[[toolchain]]
commands = ["shuttle", "needle"]
purpose = "weaves"
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        file = tmp_path / "platform.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_manifest(file)

    return from_text


def test_a_whole_manifest_is_read(read):
    manifest = read(WHOLE)
    assert manifest.fence == ("python", "py")
    assert manifest.toolchain[0].commands == ("shuttle", "needle")
    assert hash(manifest) == hash(Manifest.from_json(manifest.to_json()))


def without(field):
    return "\n".join(line for line in WHOLE.splitlines() if not line.startswith(field))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (without("device"), "field 'device' is missing"),
        ("colour = 'red'\n" + WHOLE, "field 'colour' is not known; remove it"),
        (WHOLE.replace('"Loom"', "3"), "field 'title' must be text, not 3"),
        (WHOLE.replace('"loom"', '"Big Loom"'), "field 'name' must match ^[a-z][a-z0-9_-]*$, not 'Big Loom'"),
        (WHOLE.replace('["It weaves."]', "[]"), "field 'facts' must have a length of at least 1"),
        (WHOLE.replace('"It weaves."', '"  "'), "field 'facts.0' must have a length of at least 1, not "),
        (without("purpose"), "field 'toolchain.0.purpose' is missing"),
        ("name = 'loom'", "field 'title' is missing (and 4 more problems)"),
        ("name = \n", "is not valid TOML: Invalid value (at line 1, column 8)"),
        (b"name = '\xff'", "is not UTF-8 text"),
    ],
)
def test_a_wrong_manifest_is_one_line_with_file_field_and_problem(read, tmp_path, text, problem):
    with pytest.raises(PlatformError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'platform.toml'}: {problem}")
    assert "\n" not in message


def test_a_missing_manifest_is_said(tmp_path):
    with pytest.raises(PlatformError, match=r"nowhere/platform\.toml: cannot be read: No such file or directory$"):
        read_manifest(tmp_path / "nowhere" / "platform.toml")
