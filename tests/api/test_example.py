"""The example script does what it says it does, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.volume  # test_real_modules.py does the same with the snippets of the docs
def test_a_transformer_with_forged_layers(root: Path, clean_environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, root / "examples" / "forged_transformer.py"],
        cwd=tmp_path,
        env=clean_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    finding = r"(faster|slower|cannot tell), \d+\.\d+x \(\d+\.\d+ to \d+\.\d+\)|not measured; \d+\.\d+x seen"
    expected = [
        f"layer 0: ({finding})",
        f"layer 2: ({finding})",
        r"same output at \(8, 32, 64\)",
        r"same output at \(2, 32, 64\)",
        r"same output at \(3, 7, 64\)",
        "36 of 36 parameters moved",
        "saved and loaded: ForgedTransformerEncoderLayer, (faster|slower|cannot tell|not measured)",
    ]
    lines = done.stdout.splitlines()
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
    assert "TransformerEncoderLayer on cpu with builtin: tracing the module" in done.stderr
    assert len(list((tmp_path / "kforge-runs").glob("*/best.py"))) == 2
