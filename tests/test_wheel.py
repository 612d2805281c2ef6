"""The built wheel is whole, and kforge runs from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# What only an explicit look finds missing: Python imports none of these.
DATA = (
    "prompts/**/*.j2",
    "platforms/*/platform.toml",
    "platforms/*/example/*.py",
    "problems/suites/*/suite.toml",
    "problems/suites/*/*/*.py",
    "store/migrations/*",
    "inline/cuda/include/*",
    "inline/metal/include/**/*",
    "inline/metal/runtime/*",
    "py.typed",
)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(root)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = target.glob("kforge-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the unpacked wheel; the dependencies come from this environment."""
    target = tmp_path_factory.mktemp("installed")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return target


def run(installed: Path, environment: dict[str, str], *command: str) -> str:
    """Standard output of a command that sees the wheel before the checkout, from a folder that is neither."""
    done = subprocess.run(
        command,
        cwd=installed.parent,
        env=environment | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("pattern", DATA)
def test_the_source_tree_has_data_of_each_kind(root: Path, pattern: str) -> None:
    assert list((root / "src" / "kforge").glob(pattern))


def test_every_file_of_the_package_is_in_the_wheel(root: Path, wheel: Path) -> None:
    source = root / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "kforge").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"kforge", f"kforge-{wheel.name.split('-')[1]}.dist-info"}


def test_the_module_runs_from_the_wheel(wheel: Path, installed: Path, clean_environment: dict[str, str]) -> None:
    where = run(installed, clean_environment, sys.executable, "-c", "import kforge; print(kforge.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    version = wheel.name.split("-")[1]
    assert run(installed, clean_environment, sys.executable, "-m", "kforge", "--version") == f"kforge {version}\n"


def test_the_console_script_finds_the_platforms_of_the_wheel(
    installed: Path, clean_environment: dict[str, str], root: Path
) -> None:
    script = installed / "bin" / "kforge"
    assert os.access(script, os.X_OK)
    listed = run(installed, clean_environment, str(script), "platforms").split()
    for manifest in (root / "src" / "kforge" / "platforms").glob("*/platform.toml"):
        assert manifest.parent.name in listed
