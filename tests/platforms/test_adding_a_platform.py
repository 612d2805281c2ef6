"""docs/adding-a-platform.md, followed command by command: no file of kforge is touched."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.docs.checking import FENCE

from kforge import platforms
from kforge.platforms.new_platform import create

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Ran, RunKforge

HOME_CONFIG = "~/.config"
WAITING = 75


def state_of(folder: Path) -> dict[Path, tuple[int, int]]:
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


@pytest.mark.timeout(900)  # seven commands with real evaluations, on machines that others use too
def test_the_page_is_followed_and_all_commands_know_the_platform(
    kforge_in_process: RunKforge, root: Path, tmp_path: Path
) -> None:
    page = (root / "docs" / "adding-a-platform.md").read_text()
    config, before = tmp_path / "config", state_of(root / "src" / "kforge")
    ran: dict[str, Ran] = {}
    end = 0
    for block in FENCE.finditer(page):
        said, end = page[end : block.start()], block.end()
        if block["language"].strip():
            (name,) = re.findall(r"Write `(~/[^`]+)`:\s*$", said)
            (config / name.removeprefix(f"{HOME_CONFIG}/")).write_text(block["text"])
            continue
        for line in block["text"].splitlines():
            program, *arguments = shlex.split(line.replace(HOME_CONFIG, str(config)))
            assert program == "kforge"
            ran[line] = kforge_in_process(*arguments, environment={"XDG_CONFIG_HOME": str(config)})
            assert ran[line].status == (WAITING if "exchange" in line else 0), (line, ran[line])
    made, doctor, listed, evaluated, waiting, suite = ran.values()  # the second doctor is the same command
    assert "kforge doctor numba" in made.stdout
    assert doctor.stdout.startswith("numba: works: example built, run and verified, ")
    assert "numba 0." in doctor.stdout
    assert re.search(r"^numba\s+Python, compiled by Numba for torch device cpu, available", listed.stdout, re.MULTILINE)
    assert evaluated.stdout.startswith("correct: ")
    prompts = sorted((tmp_path / "kforge-runs").rglob("exchange/*.prompt.md"))
    assert len(prompts) == 2, "one of the run, one of the suite"
    for prompt in prompts:
        for fact in ("@numba.njit and a signature", "def scale_shift_relu", "LLVM vectorizes it"):
            assert fact in prompt.read_text()
    assert waiting.stderr.count("waiting for a reply") == 1
    assert "softmax/wide_rows" in suite.stderr
    (of_run,) = (tmp_path / "kforge-runs").glob("*/exchange/*.prompt.md")
    kernel = (config / "kforge" / "platforms" / "numba" / "example" / "kernel.py").read_text()
    of_run.with_name(of_run.name.replace(".prompt.", ".reply.")).write_text(f"```python\n{kernel}```\n")
    run = of_run.parents[1]
    done = kforge_in_process("resume", run, "--json", environment={"XDG_CONFIG_HOME": str(config)})
    assert json.loads(done.stdout)["best"]["state"] == "correct", done
    assert state_of(root / "src" / "kforge") == before


def test_a_platform_is_written_elsewhere_and_its_readme_says_how_it_is_found(
    kforge_in_process: RunKforge, tmp_path: Path
) -> None:
    ran = kforge_in_process("new-platform", "mine", "--into", tmp_path, "--json")
    assert json.loads(ran.stdout)["folder"] == str(tmp_path / "mine")
    assert f"kforge doctor mine --platform-dir {tmp_path / 'mine'}" in (tmp_path / "mine" / "README.md").read_text()
    assert platforms.find("mine", [tmp_path]).adapter.probe() is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Mine"], "kforge: 'Mine' is not valid: a platform's name has lower-case letters"),
        (["null"], "kforge: there is a platform named 'null' already; choose another name"),
        (
            ["mine", "--requires", "a b"],
            "kforge: 'a b' is not valid: give the name under which the package is imported",
        ),
        (["taken"], "taken already exists; choose another name, or another folder with --into"),
    ],
)
def test_what_cannot_be_a_platform_is_one_line(
    kforge_in_process: RunKforge, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "taken").mkdir()
    ran = kforge_in_process("new-platform", *arguments, "--into", tmp_path)
    assert ran.status == 2
    (line,) = ran.stderr.splitlines()
    assert said in line
    assert sorted(tmp_path.iterdir()) == [tmp_path / "taken"]


def test_the_files_are_those_that_a_platform_needs(tmp_path: Path) -> None:
    files = create("mine", tmp_path / "mine", ["one", "two", "one"])
    assert [str(file.relative_to(tmp_path / "mine")) for file in files] == [
        "platform.toml", "example/reference.py", "example/kernel.py", "README.md",
    ]  # fmt: skip
    assert 'requires = ["torch", "one", "two"]' in files[0].read_text()
    assert not any("@" in file.read_text() for file in files)
