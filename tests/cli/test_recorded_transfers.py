"""Recorded transfers under examples/transfer: answers of a model, with and without a CUDA program as the reference."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunKforge

REPLAYED = {
    "causal": ("attention", "metal", ("BATCH=1", "TOKENS=37", "WIDTH=24")),
    "running_sum": ("scans", "opencl", ()),
}
CHEAP = ("-n", "1", "--no-compile-baseline", "--no-sanitize", "--replications", "0", "--json")


@pytest.mark.skipif(sys.platform == "darwin", reason="needs a machine that is not a Mac")
@pytest.mark.parametrize("name", REPLAYED)
def test_a_recorded_transfer_replays_with_its_reference(kforge_in_process: RunKforge, root: Path, name: str) -> None:
    family, platform, overrides = REPLAYED[name]
    folder = root / "examples" / "transfer" / name
    ran = kforge_in_process(
        "forge", root / f"src/kforge/problems/suites/core/{family}/{name}.py", "-p", platform, *CHEAP,
        "-m", f"replay:{folder / 'exchange'}", *(word for each in overrides for word in ("--set", each)),
        "--reference", folder / "kernel.cu.py", "--reference-platform", "cuda",
    )  # fmt: skip
    (attempt,) = json.loads(ran.stdout)["attempts"]
    assert attempt["state"] == "correct", attempt.get("reason")


def test_every_recorded_transfer_has_an_answer_with_and_one_without_the_reference(root: Path) -> None:
    folders = [folder for folder in sorted((root / "examples" / "transfer").iterdir()) if folder.is_dir()]
    assert len(folders) >= 8
    for folder in folders:
        program = (folder / "kernel.cu.py").read_text()
        prompts = [path.read_text() for path in sorted((folder / "exchange").glob("*.prompt.md"))]
        first = [prompt for prompt in prompts if "# Your last program" not in prompt]
        assert sorted(program in prompt for prompt in first) == [False, True], folder.name
        for path in (folder / "exchange").glob("*.prompt.md"):
            reply = path.with_name(path.name.replace(".prompt.", ".reply.")).read_text()
            assert re.search(r"^```python\n.*^```$", reply, re.MULTILINE | re.DOTALL), path.name
