"""kforge where everything is missing that Linux has and macOS lacks. What only a Mac has cannot be tried here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge.inline import cxx

if TYPE_CHECKING:
    from tests.conftest import RunKforge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to take away what macOS lacks")
AS_ON_MACOS = Path(__file__).with_name("as_on_macos")


@pytest.fixture
def macos(clean_environment: dict[str, str]) -> dict[str, str]:
    given = clean_environment.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([str(AS_ON_MACOS), *([given] if given else [])])}


def test_a_program_is_built_verified_and_timed_without_what_only_linux_has(
    kforge: RunKforge, macos: dict[str, str], tmp_path: Path
) -> None:
    problem = (
        "import torch\nfrom torch import nn\n\nclass {}(nn.Module):\n    def forward(self, x):\n        return {}\n"
    )
    inputs = "\ndef get_inputs():\n    return [torch.randn(64, 64)]\n\ndef get_init_inputs():\n    return []\n"
    (tmp_path / "problem.py").write_text(problem.format("Model", "x + x") + inputs)
    (tmp_path / "program.py").write_text(problem.format("ModelNew", "2 * x"))
    ran = kforge(
        "eval", "problem.py", "program.py", "-p", "null", "--unsafe", "--no-compile-baseline", "--json",
        environment=macos,
    )  # fmt: skip
    assert ran.status == 0, ran
    document = json.loads(ran.stdout)
    assert document["state"] == "correct"
    assert document["speedup"]["eager"]["low"] > 0
    # none of them can be had without Linux, and all of them are said
    assert {"untraced", "outputs_not_seen", "unsafe"} <= set(document["labels"])


def test_every_module_is_imported_and_small_parts_answer(macos: dict[str, str]) -> None:
    program = (
        "import importlib, pkgutil, sys, kforge\n"
        "assert sys.platform == 'darwin'\n"
        "for found in pkgutil.walk_packages(kforge.__path__, 'kforge.'):\n"
        "    if '.suites.' not in found.name and '.example' not in found.name and not found.name.endswith(\n"
        "        ('.__main__', '.ahead', '.fresh_worker')\n"
        "    ):\n"
        "        importlib.import_module(found.name)\n"
        "from kforge.inline.metal import library\n"
        "from kforge.platforms import find, host, inherited_limits\n"
        "assert host.threads() >= 1 and host.available_memory() > 0 and host.caches() == []\n"
        "inherited_limits.of_process(), inherited_limits.of_groups()\n"
        "assert find('metal').adapter.emulated() is None\n"
        "from kforge.evaluation.sandbox import seatbelt\n"
        "assert 'sandbox-exec is missing' in seatbelt.choose(['namespaces'])[1]\n"
        "print('all of it')\n"
    )
    environment = {**os.environ, **macos}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "all of it\n", done.stderr


def test_apples_compiler_gets_flags_that_it_knows(tmp_path: Path) -> None:
    assert "-mcpu=native" in cxx.compile_flags(apple=True)
    assert "-march=native" not in cxx.compile_flags(apple=True)
    assert cxx.compile_flags(apple=True)[2:4] == ("-Xpreprocessor", "-fopenmp")
    runtime = tmp_path / "libomp.dylib"
    assert cxx.link_flags(runtime, apple=True) == ["-dynamiclib", "kernel.o", "-o", "kernel.so", str(runtime)]
    assert cxx.link_flags(None, apple=False)[:2] == ["-shared", "-Wl,-z,defs"]
