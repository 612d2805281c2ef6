"""The one reader of files that somebody else may have made."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge import reading

PIPE_READER = """
import sys; from pathlib import Path; from kforge import reading
sys.stdout.write(reading.text(Path(sys.argv[1]), streams=True))
"""


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str, streams: bool) -> None:
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"it is not a file|Is a directory") as refused:
        reading.content(path, streams=streams)
    assert refused.value.filename == str(path)


def test_a_file_of_any_size_must_be_a_regular_one(tmp_path: Path) -> None:
    """Cause: a pipe in the place of weights was waited for without an end."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="it is not a file"), reading.regular(place):
            pass
    (tmp_path / "file").write_bytes(b"held")
    with reading.regular(tmp_path / "file") as file:
        assert file.read() == b"held"


def test_a_pipe_that_the_shell_opened_is_read(tmp_path: Path) -> None:
    """An honest near miss: `<(command)`, whose writer may take its time."""
    command = f'"{sys.executable}" -c "$0" <(sleep 0.3; echo late)'
    done = subprocess.run(["bash", "-c", command, PIPE_READER], capture_output=True, text=True, check=True)
    assert done.stdout == "late\n"


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert reading.content(path, most=10) == b"x" * 10
    with pytest.raises(OSError, match="it is larger than"):
        reading.content(path, most=9)
    os.truncate(path, 2**43)
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        reading.content(path, most=2**20)


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert reading.text(tmp_path / "link") == "text"
    with pytest.raises(OSError, match="symbolic links") as refused:
        reading.text(tmp_path / "link", follow=False)
    assert refused.value.errno == errno.ELOOP


@pytest.mark.parametrize(
    ("name", "said"),
    [("a\0b", "such a name"), ("\ud800", "such a name"), ("x" * 300, "name too long"), ("none", "No such file")],
)
def test_a_name_that_no_file_has_is_an_error_of_the_system(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(OSError, match=said):
        reading.content(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "9" * 5000, "4300"),
        ("a = [{b = 0x" + "f" * 5000 + "}]", "more than 64 bits"),
        ("a = 9223372036854775808", "more than 64 bits"),
        ("a = \x00", "Invalid"),
    ],
)
def test_a_document_that_toml_does_not_allow_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        reading.toml(text)
    assert "\n" not in str(refused.value)
    assert reading.toml("a = -9223372036854775808") == {"a": -(2**63)}
