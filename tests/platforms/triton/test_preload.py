"""What every worker of this platform finds done: it starts nothing that a fork would break, and decides nothing."""

import importlib.util
import os
import subprocess
import sys

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only"),
]

FORKS = """
import os, runpy, sys
from pathlib import Path

import torch

folder, cache = map(Path, sys.argv[1:])

def standing():
    return len(os.listdir("/proc/self/task")), "libcuda.so" in Path("/proc/self/maps").read_text()

before = standing()
runpy.run_path(str(folder / "preload.py"))["preload"]()
assert standing() == before, "it started threads or loaded the driver"
pid = os.fork()
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.environ["TRITON_CACHE_DIR"] = str(cache)
sys.argv[1:] = [str(folder / "example" / "kernel.py"), "sm_90"]
runpy.run_path(str(folder / "ahead.py"), run_name="__main__")
"""


def test_a_fork_builds_and_where_is_its_own_matter(tmp_path):
    folder = platforms.find("triton").folder
    command = ["env", "-u", "TRITON_INTERPRET", sys.executable, "-c", FORKS, str(folder), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "cache").rglob("*.cubin"))


@pytest.mark.slow
def test_a_worker_has_it_and_its_own_variables_hold(tmp_path):
    platform = platforms.find("triton")
    told = """
import os, sys
assert "triton.language" in sys.modules
import triton
assert triton.knobs.cache.dir == os.environ["TRITON_CACHE_DIR"], triton.knobs.cache.dir
assert triton.knobs.cache.dir.endswith("triton")
"""
    (tmp_path / "reference.py").write_text(platform.example.reference)
    problem = problems.load(tmp_path / "reference.py", overrides=["ROWS=16", "FEATURES=64"])
    with Judge(
        platform, cache=tmp_path / "cache", environment=dict(os.environ), compile_baseline=False, unsafe=True
    ) as judge:
        evaluation = judge.evaluate(problem, Candidate(source=told + platform.example.kernel, platform="triton"))
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
