"""`kforge prompts` shows what the agents would be asked, and asks no model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunKforge

STEPS = {
    ("--step", "generate"): "Write a correct program for this problem",
    ("--step", "repair", "--state", "runtime_error"): "# Runtime error",
    ("--step", "analyze"): "# Its profile",
    ("--step", "optimize", "--prompts", "zero-shot"): "Answer with one code block that holds a faster program.",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_prompt_is_shown_without_a_model(kforge_in_process: RunKforge, tiny: Path, step: tuple[str, ...]) -> None:
    ran = kforge_in_process("prompts", tiny, "-p", "null", *step, "--json")
    assert ran.status == 0, ran.stderr
    system, user = json.loads(ran.stdout)
    assert (system["role"], user["role"]) == ("system", "user")
    assert STEPS[step] in user["text"]
