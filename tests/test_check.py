"""What `make check` does, beside the other tests: one after the other they would leave a core without work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
TOOLS = Path(sys.executable).parent
(RECIPE,) = re.findall(r"^check:.*\n((?:\t\$\(BIN\)/.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", re.findall(r"\$\(BIN\)/(.*)", RECIPE))
def test_it_has_nothing_to_say(root: Path, command: str) -> None:
    tool, *arguments = command.split()
    if not (TOOLS / tool).exists():
        pytest.skip(f"{tool} is not installed here")
    ran = subprocess.run([TOOLS / tool, *arguments], cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
