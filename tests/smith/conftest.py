"""Programs of the smith and how they are run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

Given = tuple[str, dict[str, torch.Tensor], list[list[torch.Tensor]]]
"""A program's text, its state, and the inputs of several calls."""


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs Triton programs on the host, all in one process: what each returns, or what it raises as a string."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")

    def run(programs: dict[str, Given]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("interpreted")
        files = {name: f"program{number}" for number, name in enumerate(programs)}
        for name, (source, state, inputs) in programs.items():
            (folder / f"{files[name]}.py").write_text(source)
            torch.save((state, inputs), folder / f"{files[name]}.given.pt")
        script = Path(__file__).with_name("interpreted.py")
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        subprocess.run([sys.executable, "-W", "ignore", str(script), str(folder)], env=environment, check=True)
        return {name: torch.load(folder / f"{file}.got.pt") for name, file in files.items()}

    return run
