"""What lies inside the border, and what never does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import kforge
from kforge.evaluation.processes import launch
from kforge.evaluation.sandbox import Border, WorkerFolders, border, seatbelt
from kforge.evaluation.sandbox.border import shareable


def test_the_folder_it_was_started_in_and_home_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path.parent), str(Path.home()), *sys.path])
    entries = launch.import_path().split(os.pathsep)
    assert str(Path(kforge.__file__).parents[1]) in entries
    assert not {str(tmp_path), str(tmp_path.parent), str(Path.home())} & set(entries)


def test_a_folder_is_shareable_when_nothing_private_lies_in_it(tmp_path: Path) -> None:
    private = [tmp_path / "home" / "me"]
    assert shareable(str(tmp_path / "home" / "me" / "venv"), private)
    assert shareable(str(tmp_path / "elsewhere"), private)
    assert not shareable(str(tmp_path / "home"), private)
    assert not shareable(str(tmp_path / "home" / "me"), private)


def test_a_border_names_each_place_once(tmp_path: Path) -> None:
    (tmp_path / "lib" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    imports = os.pathsep.join(str(tmp_path / name) for name in ("lib", "lib/inner", "link", "gone"))
    readable = Border.around(imports, "relative:/", (), ()).readable
    ours = sorted(path for path in readable if path.startswith(str(tmp_path)))
    assert ours == [str(tmp_path / "lib"), str(tmp_path / "link")]
    assert str(tmp_path / "lib" / "inner") not in readable
    assert "/" not in readable
    assert "relative" not in readable


def test_a_path_that_holds_something_private_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: entries of PATH were shown as they were, also home, and the whole file system by another spelling."""
    home = tmp_path / "homes" / "me"
    (home / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "all").symlink_to("/")
    monkeypatch.setenv("HOME", str(home))
    hidden = [home, home.parent, f"/{home}", f"{home}/.", tmp_path / "link", tmp_path / "all"]
    path = os.pathsep.join(map(str, [*hidden, "/", "//", "/.", "/usr/..", home / "bin"]))
    readable = Border.around("", path, (), ()).readable
    shown = {str(Path(each).resolve()).replace("//", "/") for each in readable}
    assert not any(home.is_relative_to(each) for each in shown)
    assert str(home / "bin") in readable


def test_what_is_private_to_the_user_is_hidden_by_a_process_that_was_started_elsewhere(tmp_path: Path) -> None:
    """Cause: a referee has a folder and an environment of its own, and would not know which ones to hide."""
    (tmp_path / "project" / "bin").mkdir(parents=True)
    path = os.pathsep.join(str(tmp_path / name) for name in ("project", "project/bin"))
    readable = Border.around("", path, (), (), [tmp_path / "project"]).readable
    assert {each for each in readable if Path(each).is_relative_to(tmp_path)} == {str(tmp_path / "project" / "bin")}


def test_an_interpreter_that_lies_in_a_private_place_is_shown_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in the project itself, or a link to the interpreter in the home folder."""
    for name in ("bin", "lib", "secrets"):
        (tmp_path / name).mkdir()
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    readable = Border.around("", "", (), ()).readable
    ours = {path for path in readable if Path(path).is_relative_to(tmp_path)}
    assert ours == {str(tmp_path / name) for name in ("bin", "lib", "python")}
    assert not {str(tmp_path), str(tmp_path / "secrets")} & set(readable)


@pytest.fixture
def opt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the system, with installed software and a project in it."""
    opt = tmp_path / "opt"
    for name in ("tool/bin", "app/.venv/bin", ".secrets"):
        (opt / name).mkdir(parents=True)
    for name in ("app/secret.env", ".env", "notes"):
        (opt / name).touch()
    (opt / "current").symlink_to(opt / "app")
    monkeypatch.setattr(border, "SYSTEM", (*border.SYSTEM, str(opt)))
    monkeypatch.setattr(border, "_ROOTS", (*border._ROOTS, str(opt)))
    return opt


def shown_of(opt: Path, private: Path, path: str = "") -> set[str]:
    readable = Border.around("", path, (), (), [private]).readable
    return {str(Path(each).relative_to(opt)) for each in readable if Path(each).is_relative_to(opt)}


def test_a_system_folder_with_something_private_in_it_is_shown_without_that(opt: Path) -> None:
    """Cause: folders of the system were shown whole, also where the user works, or has a home, in one of them."""
    assert shown_of(opt, opt.parent) == {"."}, "what is private lies elsewhere"
    assert shown_of(opt, opt / "app") == {".env", ".secrets", "current", "notes", "tool"}
    tools = str(opt / "app" / ".venv" / "bin")
    assert shown_of(opt, opt / "app", tools) == {".env", ".secrets", "app/.venv/bin", "current", "notes", "tool"}
    assert shown_of(opt, opt / "tool" / "bin") == {".env", ".secrets", "app", "current", "notes"}


def test_a_name_that_is_not_utf_8_beside_something_private_is_left_out(opt: Path) -> None:
    """The fork server could not be told of it, and no worker could be made."""
    Path(os.fsdecode(os.fsencode(opt) + b"/odd\xff")).mkdir()
    assert shown_of(opt, opt / "app") == {".env", ".secrets", "current", "notes", "tool"}


def test_a_user_who_works_in_a_system_folder_itself_has_its_files_hidden(opt: Path) -> None:
    assert shown_of(opt, opt) == {"app", "current", "tool"}


def test_a_user_who_works_where_libraries_are_can_still_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = set(Border.around("", "", (), ()).readable)
    monkeypatch.chdir("/usr/lib")
    assert set(Border.around("", "", (), ()).readable) == expected


def test_an_interpreters_library_folder_is_shown_without_what_is_private_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lib/python", "lib/app"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    readable = Border.around("", "", (), (), [tmp_path / "lib" / "app"]).readable
    assert {each for each in readable if Path(each).is_relative_to(tmp_path)} == {str(tmp_path / "lib" / "python")}


def test_devices_are_globbed_when_they_are_needed() -> None:
    assert "/dev/null" in Border((), ()).device_nodes()
    assert {"/dev/tty", "/dev/null"} & set(Border((), ("/dev/nul*",)).device_nodes()) == {"/dev/null"}
    assert Border((), ("/dev/no-such-*",)).device_nodes() == Border((), ()).device_nodes()


def test_a_platform_may_name_devices_and_what_its_driver_reads(tmp_path: Path) -> None:
    (tmp_path / "driver.conf").touch()
    border = Border.around("", "", (), ("/dev/nul*", f"{tmp_path}/*.conf", "SomeUserClient"))
    assert border.devices == ("/dev/nul*", "SomeUserClient")
    assert str(tmp_path / "driver.conf") in border.readable
    assert "/sys" in border.readable


def test_the_profile_for_macos_denies_what_it_does_not_name() -> None:
    border = Border(("/opt/py thon", '/odd"name'), ("SomeUserClient", "com.example.compiler"))
    lines = seatbelt.profile(border, WorkerFolders(Path("/w/work"), Path("/w/builds"))).splitlines()
    assert lines[:3] == ["(version 1)", "(deny default)", "(deny network*)"]
    assert all(line.count("(") == line.count(")") for line in lines)
    writes = [line for line in lines if "file-write*" in line]
    assert writes == ['(allow process-exec* file-read* file-write* (subpath "/w/work") (subpath "/w/builds"))']
    assert any('(subpath "/opt/py thon")' in line and '(subpath "/odd\\"name")' in line for line in lines)
    assert '(allow iokit-open (iokit-user-client-class "SomeUserClient"))' in lines
    assert '(allow mach-lookup (global-name "com.example.compiler"))' in lines
    assert not any(
        "iokit" in line for line in seatbelt.profile(Border((), ()), WorkerFolders(Path("/a"), Path("/b"))).split("\n")
    )
    assert seatbelt.wrapper(border, WorkerFolders(Path("/w"), Path("/b")))[:2] == ("/usr/bin/sandbox-exec", "-p")


def test_macos_refuses_or_goes_without_like_linux() -> None:
    assert seatbelt.choose(("namespaces", "unsafe"))[0] in ("seatbelt", "unsafe")
    assert seatbelt.choose(("unsafe",))[0] == "unsafe"
    name, why = seatbelt.choose(())
    assert (name, "--unsafe" in why) == ("", True)
