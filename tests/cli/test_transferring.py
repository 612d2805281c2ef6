"""`transfer`: one problem on several platforms, with and without the program of a finished run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kforge import platforms

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Answers
    from tests.conftest import RunKforge

QUICK = ("--no-sanitize", "--replications", "0")


@pytest.fixture
def loom(tmp_path: Path) -> Path:
    """A platform like `null` under another name, with other words for some things."""
    folder = tmp_path / "loom"
    shutil.copytree(platforms.find("null").folder, folder)
    manifest = (folder / "platform.toml").read_text().replace('name = "null"', 'name = "loom"')
    (folder / "platform.toml").write_text(f'{manifest}\n[concepts]\ngroup = "warp and weft"\n')
    return folder


@pytest.fixture
def finished(kforge_in_process: RunKforge, tiny: Path, loom: Path, script: Callable[..., str], answers: Answers) -> str:
    """A finished run on the platform `loom`, whose program states a plan as one by the built-in generator does."""
    options = ("-p", "loom", "--platform-dir", str(loom), "-n", "1", "--no-compile-baseline", *QUICK, "--json")
    planned = answers.fast.replace("```python\n", "```python\n# Made by kforge's smith: algebra=1, kernels=1\n")
    ran = kforge_in_process("forge", tiny, *options, "-m", script(planned))
    return str(json.loads(ran.stdout)["run"])


def transferred(kforge: RunKforge, run: str, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    ran = kforge("transfer", run, *QUICK, "-n", "2", *options, "--json")
    return ran.status, json.loads(ran.stdout)["results"], ran.stderr


def test_replies_are_waited_for_and_both_ways_are_counted(
    kforge_in_process: RunKforge, finished: str, loom: Path, answers: Answers
) -> None:
    options = ("--to", "null,nowhere", "-m", "exchange", "--platform-dir", str(loom))
    status, results, told = transferred(kforge_in_process, finished, *options)
    assert status == 75
    assert "give the same command again" in told
    assert [(each["platform"], each["with_reference"], each["result"]["state"]) for each in results] == [
        ("null", False, "waiting"), ("null", True, "waiting"), ("nowhere", True, "unavailable"),
    ]  # fmt: skip
    without, carried = (Path(each["result"]["run"]) for each in results[:2])
    (asked,), (asked_carried,) = ((run / "exchange").glob("*.prompt.md") for run in (without, carried))
    assert "Reference implementation" not in asked.read_text()
    assert "warp and weft" in asked_carried.read_text(), "the terms of the first platform are told"
    # a model that fails at first without the reference, and writes a correct program at once with it
    reply_to(asked, answers.wrong)
    reply_to(asked_carried, answers.fast)
    again = transferred(kforge_in_process, finished, *options)[1]
    assert [each["result"]["run"] for each in again[:2]] == [str(without), str(carried)], "no run was begun again"
    (second,) = (prompt for prompt in (without / "exchange").glob("*.prompt.md") if prompt != asked)
    reply_to(second, answers.fast)
    results = transferred(kforge_in_process, finished, *options)[1]
    assert [each.get("passes") for each in results] == [2, 1, None]


def reply_to(prompt: Path, text: str) -> None:
    prompt.with_name(prompt.name.replace(".prompt.", ".reply.")).write_text(text)


def test_a_run_is_a_reference_for_a_single_run_too(
    kforge_in_process: RunKforge, finished: str, tiny: Path, loom: Path
) -> None:
    options = ("-p", "null", "-m", "exchange", "--platform-dir", str(loom), "--reference", finished, "--json")
    ran = kforge_in_process("forge", tiny, *options)
    (prompt,) = json.loads(ran.stdout)["waiting"]
    assert "warp and weft" in Path(prompt).read_text()
    refused = kforge_in_process("forge", tiny, *options, "--reference-platform", "null")
    assert (refused.status, refused.stdout) == (2, "")
    assert "is for loom, not for null" in refused.stderr


SMALLER = ("--set", "ROWS=3", "--set", "COLUMNS=70", "--no-compile-baseline", *QUICK, "--json")
WIDE_ROWS = ("forge", "wide_rows.py", *SMALLER)
AS_DOCUMENTED = ("-p", "cpu", "--reference", "kernel.cu.py", "--reference-platform", "cuda")


@pytest.fixture
def wide_rows(root: Path, tmp_path: Path) -> Path:
    """A folder with a problem and the CUDA program that the built-in generator wrote for it."""
    shutil.copy(root / "src/kforge/problems/suites/core/softmax/wide_rows.py", tmp_path)
    shutil.copy(root / "examples/transfer/wide_rows/kernel.cu.py", tmp_path)
    return tmp_path


def test_a_file_is_a_reference_in_the_terms_of_its_platform(kforge_in_process: RunKforge, wide_rows: Path) -> None:
    ran = kforge_in_process(*WIDE_ROWS, *AS_DOCUMENTED, "-m", "exchange", cwd=wide_rows)
    (prompt,) = json.loads(ran.stdout)["waiting"]
    asked = (wide_rows / prompt).read_text()
    assert (wide_rows / "kernel.cu.py").read_text() in asked
    assert platforms.find("cuda").manifest.title in asked
    assert "`__syncthreads()`" in asked, "a term of CUDA's manifest"
    unknown = kforge_in_process(*WIDE_ROWS, *AS_DOCUMENTED[:-1], "loom", "-m", "exchange", cwd=wide_rows)
    assert (unknown.status, unknown.stdout) == (2, "")
    assert "no platform named 'loom'" in unknown.stderr


def test_the_smith_takes_over_the_plan_of_a_file(kforge_in_process: RunKforge, wide_rows: Path) -> None:
    def first_line(*options: str) -> str:
        ran = kforge_in_process(*WIDE_ROWS, *options, "-m", "builtin", "-n", "1", cwd=wide_rows)
        program = next(Path(wide_rows, json.loads(ran.stdout)["run"]).glob("attempts/000/*.py"))
        return program.read_text().partition("\n")[0]

    assert "tile=64," in (wide_rows / "kernel.cu.py").read_text().partition("\n")[0]
    assert "tile=64," in first_line(*AS_DOCUMENTED)
    assert "tile=64," not in first_line(*AS_DOCUMENTED[:2])


def test_a_run_without_a_correct_program_has_nothing_to_carry_over(
    kforge_in_process: RunKforge, tiny: Path, script: Callable[..., str], answers: Answers
) -> None:
    model = script(answers.wrong)
    ran = kforge_in_process("forge", tiny, "-p", "null", "-n", "1", "--no-compile-baseline", "-m", model, "--json")
    refused = kforge_in_process("transfer", json.loads(ran.stdout)["run"], "--to", "null")
    assert (refused.status, refused.stdout) == (2, "")
    assert "has no correct program to carry over" in refused.stderr
