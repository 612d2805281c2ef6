"""The platform pallas. JAX is imported in other processes only: it warns at every fork of one that has imported it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import host
from kforge.platforms.pallas import races

KERNELS = Path(__file__).with_name("kernels.py")


def run(*command):
    done = subprocess.run(
        ["env", "JAX_PLATFORMS=cpu", *command, sys.executable, str(KERNELS)],
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1]), done.stdout


@pytest.fixture(scope="module")
def plain():
    return run()


@pytest.fixture(scope="module")
def checked():
    return run(*races.sanitizer("").wrapper)


@pytest.fixture
def adapter():
    return platforms.find("pallas").adapter


def test_kernels_run_in_the_interpreter_whatever_the_program_says(plain):
    told, said = plain
    assert told["doubled"] == told["compiled"] == 2 * 8 * 128
    assert told["checks"] is False
    assert said == ""


def test_what_does_not_lower_for_a_tpu_is_a_compile_error(plain):
    told, _ = plain
    assert told["sort"].startswith("the kernel does not lower for a TPU: Unimplemented primitive")
    assert "divisible by 8 and 128" in told["blocks"]
    assert told["lowered"] == ["doubled"]


def test_the_race_detector_names_the_lines_of_both_accesses(checked):
    told, said = checked
    assert told["checks"] is True
    found = races.read(said)
    line = KERNELS.read_text().splitlines().index("    copy.start()") + 1
    assert found.reason == f"race between a write of vmem at line {line} and a read of vmem at line {line + 1}"
    assert f"    in early at {KERNELS}:{line + 1}" in found.log


def test_the_sanitizer_is_believed_only_with_the_planted_race(checked, plain):
    sanitizer = races.sanitizer("0.10")
    assert sanitizer.name == "JAX 0.10 race detector"
    assert sanitizer.proven(checked[1])
    assert not sanitizer.proven(plain[1])
    alone = checked[1][checked[1].rindex("RACE DETECTED") :]
    assert sanitizer.proven(alone)
    assert sanitizer.read(alone) is None


def test_memory_that_was_never_written_is_nan_under_the_sanitizer(checked):
    assert checked[0]["unwritten"] is True


def test_an_unknown_error_cannot_be_planted(adapter):
    with pytest.raises(PlatformError, match="there is no planted error named overflow"):
        adapter.plant("overflow")


def test_a_program_without_kernels_is_not_sanitized():
    assert races.without_kernels("import torch") == "it has no Pallas kernel"
    assert races.without_kernels(platforms.find("pallas").example.kernel) is None


def test_its_results_are_emulated_and_its_device_says_so(adapter):
    assert adapter.emulated() == (
        "kernels ran in JAX's interpreter on the host, and were lowered for a TPU without running there"
    )
    assert adapter.describe_device() == f"JAX's interpreter on {host.describe()}"
    assert "jax" in adapter.versions()


@pytest.mark.slow
def test_the_doctor_verifies_its_example_and_lowers_it(kforge_in_process):
    ran = kforge_in_process("doctor", "pallas", "--json")
    (report,) = json.loads(ran.stdout)
    assert report["works"], report
    assert report["builds"] == ["tpu"]
    assert report["device"].startswith("JAX's interpreter on ")
