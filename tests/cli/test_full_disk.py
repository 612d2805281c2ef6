"""A disk that is full: one clear line, status 2, and nothing lost. The disks are real, small ones in memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NATIVE = """\
```python
import torch
from torch import nn
from kforge import inline

library = inline.compile('''
#include <cstdint>
extern "C" void shifted(const float* x, const float* shift, float* y, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < n; ++j) { float v = x[i * n + j] + shift[j]; y[i * n + j] = v < 0 ? 0 : v; }
}''')


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        y = torch.empty_like(x)
        library.shifted(x, self.shift, y, x.shape[0], x.shape[1])
        return y
```
"""

INSIDE = """\
import json, os, subprocess, sys
from pathlib import Path

tiny, script, *disks = sys.argv[1:]
for disk in disks:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], check=True)
cache, runs = map(Path, disks)

def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return

def kforge(*arguments):
    done = subprocess.run([sys.executable, "-m", "kforge", *arguments], capture_output=True, text=True)
    return {"status": done.returncode, "stdout": done.stdout, "said": done.stderr.splitlines()[-1:],
            "files": sorted(str(path.relative_to(runs)) for path in runs.rglob("*") if path.is_file())}

def only_run():
    return str(next(runs.glob("*/run.json")).parent)

seen = {}
fill(cache)
seen["no space for builds"] = kforge(
    "forge", tiny, "-p", "null", "-m", f"scripted:{script}", "-n", "1", "--no-compile-baseline", "--replications", "0",
    "-o", str(runs))
(cache / "filler").unlink()
fill(runs)
seen["no space for the run"] = kforge("resume", only_run())
(runs / "filler").unlink()
seen["space again"] = kforge("resume", only_run(), "--json")
print(json.dumps(seen))
"""


def namespace() -> list[str]:
    """How to get a mount table of one's own, or why there is none."""
    command = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare on this machine")
    tried = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return command


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_space(
    tiny: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    """Neither builds that failed for want of space nor a run that could not be written are held against a program."""
    command = namespace()
    disks = [tmp_path / "cache", tmp_path / "runs"]
    for disk in disks:
        disk.mkdir()
    (tmp_path / "script.json").write_text(json.dumps([NATIVE]))
    done = subprocess.run(
        [*command, sys.executable, "-c", INSIDE, str(tiny), str(tmp_path / "script.json"), *map(str, disks)],
        cwd=tmp_path,
        env=clean_environment | {"XDG_CACHE_HOME": str(disks[0])},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    builds, run, again = seen["no space for builds"], seen["no space for the run"], seen["space again"]
    assert builds["status"] == 2, builds
    assert builds["said"][0].startswith(f"kforge: No space left on the disk of {disks[0]}"), builds
    assert not [name for name in builds["files"] if name.endswith(("evaluation.json", "attempt.json", ".tmp"))]

    assert run["status"] == 2, run
    assert run["said"][0].startswith("kforge: cannot write "), run
    assert run["said"][0].endswith("No space left on device"), run
    assert not [name for name in run["files"] if name.endswith(("attempt.json", ".tmp"))]

    document = json.loads(again["stdout"])
    assert [attempt["state"] for attempt in document["attempts"]] == ["correct"], again
    # calling so small a kernel may take longer than torch's operators, which is another reason for status 1
    assert again["status"] == (1 if document["best"]["findings"]["eager"] == "slower" else 0), again
    assert len([name for name in again["files"] if name.endswith(".reply.json")]) == 1, "the model was asked once"


def test_no_room_for_temporary_files_is_one_clear_line(
    tiny: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    """A limit on file sizes stands for disks that are all full: the same system call fails, at the same place."""
    (tmp_path / "candidate.py").write_text("class ModelNew: ...\n")
    code = textwrap.dedent("""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        from kforge.cli import run
        sys.exit(run(["eval", *sys.argv[1:], "-p", "null"]))
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny), str(tmp_path / "candidate.py")],
        cwd=tmp_path, env=clean_environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("kforge: no folder can be made in the temporary folder: ")
