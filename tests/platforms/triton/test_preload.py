"""What every worker of this platform finds done: it starts nothing that a fork would break, and decides nothing."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct, EvaluationPolicy

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


BUILDS_ONCE = """
import os, sys
from pathlib import Path

from kforge.platforms.triton import driver_module, preload

first, second = map(Path, sys.argv[1:])
preload.preload()
assert "libcuda.so" not in Path("/proc/self/maps").read_text(), "it loaded the driver"
driver_module.put(first)
driver_module.put(first)
(built,) = (file for file in first.rglob("*") if file.is_file())

import triton
from triton.backends.nvidia import driver

def build(*arguments):
    raise RuntimeError("it was built again")

triton.knobs.build.impl = build
triton.knobs.cache.dir = str(second)
try:
    driver.CudaUtils()
except RuntimeError as error:
    assert str(error) == "it was built again", error
else:
    raise AssertionError("it was never built")
triton.knobs.cache.dir = str(first)
assert driver.CudaUtils().load_binary
"""


@pytest.fixture
def driver_of_nothing(tmp_path):
    """A libcuda whose functions all succeed at nothing: enough to link with, and to be loaded."""
    package = Path(importlib.util.find_spec("triton").origin).parent
    names = set(re.findall(r"\bcu[A-Z]\w*", (package / "backends" / "nvidia" / "driver.c").read_text()))
    names |= {f"{name}_v{version}" for name in names for version in (2, 3)}
    (tmp_path / "libcuda.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names)))
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "libcuda.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    return [f"TRITON_LIBCUDA_PATH={tmp_path}", f"LD_LIBRARY_PATH={tmp_path}"]


def test_what_talks_to_the_driver_is_built_once_for_all_programs(driver_of_nothing, tmp_path):
    folders = [str(tmp_path / "first"), str(tmp_path / "second")]
    command = ["env", "-u", "TRITON_INTERPRET", *driver_of_nothing, sys.executable, "-c", BUILDS_ONCE, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
        platform,
        EvaluationPolicy(compile_baseline=False, unsafe=True),
        cache=tmp_path / "cache",
        environment=dict(os.environ),
    ) as judge:
        evaluation = judge.evaluate(problem, Candidate(source=told + platform.example.kernel, platform="triton"))
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
