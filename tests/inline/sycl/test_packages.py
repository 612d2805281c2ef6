"""Intel's packages are found where they are installed, and named where they are missing."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import pytest

from kforge import inline
from kforge.inline.sycl import launcher, packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    packages._file.cache_clear()
    yield
    packages._file.cache_clear()


@pytest.fixture
def on_x86(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with x86-64 whose only packages are in the returned folder."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    site = tmp_path / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site)])
    return site


def install(site: Path, name: str, *files: str) -> None:
    """Put a package's files where pip puts them: beside `lib`, listed relative to the modules."""
    info = site / f"{name.replace('-', '_')}-2026.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2026.2.0\n")
    (info / "RECORD").write_text("".join(f"../../../{file},,\n" for file in files))
    for file in files:
        path = site.parents[2] / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(("system", "machine"), [("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")])
def test_a_machine_without_such_packages_is_told_so(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(inline.ToolchainError) as refused:
        packages.find()
    assert str(refused.value) == (
        f"needs Linux on x86-64, for which Intel publishes its SYCL packages; this is {system} on {machine}"
    )


@pytest.mark.usefixtures("on_x86")
def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    with pytest.raises(inline.ToolchainError) as refused:
        packages.find()
    assert str(refused.value) == (
        "the Python package intel-sycl-rt is not installed; install it: pip install intel-sycl-rt intel-opencl-rt"
    )


def test_files_are_found_in_the_folders_of_the_environment(on_x86: Path) -> None:
    install(on_x86, "intel-sycl-rt", "include/sycl/detail/core.hpp", "lib/libsycl.so")
    prefix = on_x86.parents[2].resolve()
    found = packages.find()
    assert found == packages.Packages("2026.2.0", prefix / "include", prefix / "lib", None)
    packages._file.cache_clear()
    install(on_x86, "intel-opencl-rt", "lib/libintelocl.so")
    assert packages.find().driver == prefix / "lib" / "libintelocl.so"


def test_a_package_whose_files_are_gone_counts_as_missing(on_x86: Path) -> None:
    install(on_x86, "intel-sycl-rt", "include/sycl/detail/core.hpp", "lib/libsycl.so")
    (on_x86.parents[2] / "lib" / "libsycl.so").unlink()
    with pytest.raises(inline.ToolchainError, match="intel-sycl-rt is not installed"):
        packages.find()


def test_a_launcher_that_does_not_compile_is_one_clear_error(
    on_x86: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(on_x86, "intel-sycl-rt", "include/sycl/detail/core.hpp", "lib/libsycl.so")
    monkeypatch.setattr(inline.configuration, "_current", inline.configuration.Configuration(cache=tmp_path / "builds"))
    with pytest.raises(
        inline.ToolchainError, match=r"cannot compile SYCL's launcher: launcher\.cpp:\d+:.*raw_kernel_arg"
    ):
        launcher.load()
