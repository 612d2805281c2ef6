"""What an ordinary program does must work behind every layer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge.evaluation import constants

if TYPE_CHECKING:
    from pathlib import Path

    from tests.evaluation.sandbox.conftest import Inside

INLINE = """
from kforge import inline
import torch
library = inline.compile('''
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
    #pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}''')
x = torch.ones(100000); y = torch.empty_like(x)
library.twice(x, y, x.numel())
say(f"{y.sum().item():.0f} with {torch.get_num_threads()} threads")
"""


def test_a_kernel_is_built_and_run(inside: Inside, tmp_path: Path) -> None:
    assert inside(INLINE) == "200000 with 2 threads"
    kept = list((tmp_path / "builds" / "inline").glob("*.so"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    assert inside(INLINE) == "200000 with 2 threads"
    assert kept[0].stat().st_mtime_ns == before, "the next worker of the program finds the build"


def test_a_damaged_build_is_built_again(inside: Inside, tmp_path: Path) -> None:
    assert inside(INLINE) == "200000 with 2 threads"
    spoil = f"for entry in Path({str(tmp_path)!r}).glob('builds/inline/*.so'): entry.write_bytes(b'')"
    assert inside(f"{spoil}\nsay('spoilt')") == "spoilt"
    assert inside(INLINE) == "200000 with 2 threads"


def test_scratch_files_and_tools_work(inside: Inside) -> None:
    said = inside("""
with tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryDirectory() as folder:
    file.write("x"); file.flush()
    (Path(folder) / "a").write_text("y")
    os.replace(Path(folder) / "a", "b")
    said = Path(file.name).read_text() + Path("b").read_text()
said += subprocess.run(["sh", "-c", "echo z | cat"], capture_output=True, text=True, check=True).stdout.strip()
said += subprocess.run([sys.executable, "-c", "import kforge; print('k')"], capture_output=True, text=True).stdout[:1]
say(said + Path.home().name[:7] + str(len(os.sched_getaffinity(0)) > 0))""")
    assert said == "xyzkworker-True"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_its_own_processes_may_talk_to_each_other(inside: Inside, method: str) -> None:
    said = inside(f"""
import multiprocessing
context = multiprocessing.get_context({method!r})
reader, writer = context.Pipe(duplex=False)
child = context.Process(target=os.write, args=(1, b"hello")) if {method!r} == "spawn" else context.Process(
    target=writer.send, args=(42,))
child.start(); child.join(20)
say([child.exitcode, reader.poll(0) and reader.recv()])""")
    assert said == ("[0, False]" if method == "spawn" else "[0, 42]")


def test_more_builds_than_allowed_are_not_kept(inside: Inside, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    keep = f"Path({str(builds)!r}, 'kept').write_text('x')\n"
    assert inside(keep + "say('done')") == "done"
    assert (builds / "kept").exists()
    # without blocks on the disk, but counted as what it would hold
    huge = f"with Path({str(builds)!r}, 'huge').open('wb') as file: file.truncate({constants.BUILD_BYTES + 1})\n"
    assert inside(huge + "say('done')") == "done"
    assert not builds.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's workers have other identities")
def test_builds_of_another_identity_are_handed_over(inside: Inside, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    (builds / "inner").mkdir(parents=True)
    for owner in (0, 65534):
        (builds / "inner" / "kept").write_text("theirs")
        for path in (builds, builds / "inner", builds / "inner" / "kept"):
            os.chown(path, owner, owner)
        assert inside(f"Path({str(builds)!r}, 'inner', 'kept').write_text('mine'); say('done')") == "done"
        assert (builds / "inner" / "kept").read_text() == "mine"


def test_builds_in_paths_that_are_too_long_do_no_harm(inside: Inside, tmp_path: Path) -> None:
    """The nursery looks at what a program kept, and not every path can be looked at."""
    deep = f"""
os.chdir({str(tmp_path / "builds")!r})
for _ in range(40):
    os.mkdir("d" * 100); os.chdir("d" * 100)
    Path("f" * 200).write_text("x")
say("done")"""
    assert inside(deep) == "done"
    assert inside("say('born')") == "born"
