"""`doctor`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from kforge import platforms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunKforge


def test_the_doctor_runs_the_example(kforge_in_process: RunKforge) -> None:
    ran = kforge_in_process("doctor", "null", "--json")
    assert ran.status == 0, ran
    assert ran.stderr.splitlines()[0].endswith("]   examining null"), "it takes long, and says what it does"
    (report,) = json.loads(ran.stdout)
    assert (report["platform"], report["works"]) == ("null", True)
    assert report["speedup"]["low"] <= report["speedup"]["median"] <= report["speedup"]["high"]
    assert report["finding"] in ("faster", "slower", "cannot tell")
    assert "torch" in report["versions"]
    assert "reason" not in report


def test_the_doctor_takes_a_platform_by_the_option_of_other_commands(kforge_in_process: RunKforge) -> None:
    """Cause: `doctor -p null` was answered with `No such option: -p`."""
    for named in (("-p", "nosuch"), ("nosuch",)):
        ran = kforge_in_process("doctor", *named)
        assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert "no platform named 'nosuch'; there are: cpu, " in ran.stderr
    ran = kforge_in_process("doctor", "-p", "null", "--json")
    assert [report["platform"] for report in json.loads(ran.stdout)] == ["null"]


def test_the_doctor_says_why_a_platform_does_not_work(kforge_in_process: RunKforge, root: Path, tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    shutil.copytree(root / "src" / "kforge" / "platforms" / "null", sick)
    manifest = sick / "platform.toml"
    manifest.write_text(manifest.read_text().replace('"null"', '"sick"'))
    (sick / "example" / "kernel.py").write_text("from torch import nn\nclass ModelNew(nn.Module): ...\n")
    ran = kforge_in_process("doctor", "sick", "--platform-dir", sick)
    assert ran.status == 1, ran
    (line,) = ran.stdout.splitlines()
    assert line.startswith("sick: unavailable: its example is not correct: runtime error: ")


def test_the_doctor_says_in_one_line_that_a_platform_builds_and_cannot_run(
    kforge_in_process: RunKforge, tmp_path: Path
) -> None:
    sick = tmp_path / "far"
    shutil.copytree(platforms.find("null").folder, sick)
    manifest = sick / "platform.toml"
    manifest.write_text(manifest.read_text().replace('name = "null"', 'name = "far"'))
    (sick / "adapter.py").write_text(
        "from kforge import platforms\n"
        "class Adapter(platforms.Adapter):\n"
        "    def probe(self): return 'the device is elsewhere'\n"
        "    def build_ahead(self, kernel): return ('far_1',) if 'ModelNew' in kernel.read_text() else ()\n"
    )
    ran = kforge_in_process("doctor", "far", "--platform-dir", sick)
    assert (ran.status, ran.stdout) == (1, "far: builds, cannot run here: the device is elsewhere\n")
    ran = kforge_in_process("doctor", "far", "--platform-dir", sick, "--json")
    assert json.loads(ran.stdout) == [
        {"platform": "far", "works": False, "reason": "the device is elsewhere", "builds": ["far_1"]}
    ]


def test_a_platform_without_its_device_claims_nothing(
    kforge_in_process: RunKforge, small_platform: Callable[[str], Path]
) -> None:
    stand_in = small_platform("standin")
    (stand_in / "adapter.py").write_text(
        "from kforge import platforms\n"
        "class Adapter(platforms.Adapter):\n"
        "    def synchronize(self): pass\n"
        "    def emulated(self): return 'it ran elsewhere'\n"
    )
    ran = kforge_in_process("doctor", "standin", "--platform-dir", stand_in)
    assert (ran.status, ran.stdout) == (
        0,
        "standin: works, emulated: example built, run and verified, not timed: it ran elsewhere\n",
    )
    example = stand_in / "example"
    ran = kforge_in_process(
        "eval", example / "reference.py", example / "kernel.py", "-p", "standin", "--platform-dir", stand_in,
        "--no-compile-baseline", "--json",
    )  # fmt: skip
    document = json.loads(ran.stdout)
    assert "emulated" in document["labels"]
    assert (document["state"], document["untimed"]) == ("correct", "it ran elsewhere")
    assert document.keys().isdisjoint({"speedup", "seconds", "findings", "baselines"})
    assert document["receipt"]["samples"] == {}
