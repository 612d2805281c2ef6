"""A test is skipped only for a reason that is listed, and tests of a missing device are one line a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="skips are checked where CI runs")

TESTS = """
import pytest

def test_with_a_reason_of_this_machine():
    pytest.skip("needs two processors")

def test_with_another_reason():
    pytest.skip("needs two processors and some luck")

@pytest.mark.skip(reason="triton is not installed")
def test_with_a_mark():
    raise AssertionError

@pytest.mark.xfail(reason="it fails")
def test_that_fails_as_expected():
    raise AssertionError

@pytest.mark.device("nowhere")
@pytest.mark.parametrize("number", range(30))
def test_on_a_device(number):
    raise AssertionError

def test_that_passes():
    pass
"""
NOWHERE = """
import types
import torch
torch.get_device_module = lambda name: types.SimpleNamespace(is_available=lambda: False)
"""


def test_only_listed_reasons_are_skips_and_a_missing_device_is_one_a_file(root: Path, tmp_path: Path) -> None:
    for name in ("conftest.py", "allowed_skips.txt", "slow_tests.txt"):
        shutil.copy(root / "tests" / name, tmp_path)
    (tmp_path / "test_some.py").write_text(NOWHERE + TESTS)
    options = ["-q", "-p", "no:cacheprovider", "-c", root / "pyproject.toml", "--rootdir", tmp_path]
    command = [sys.executable, "-m", "pytest", *options, tmp_path]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "1 failed, 1 passed, 2 skipped, 29 deselected, 1 xfailed, 1 error" in said, said
    assert "allowed_skips.txt does not have: needs two processors and some luck" in said
    assert "allowed_skips.txt does not have: triton is not installed" in said
    assert "torch sees no nowhere device here, which 30 tests of this file need" in said
