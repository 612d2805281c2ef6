"""`forge --image` and `--profile-as`: one line for what cannot be shown, and a run that keeps what can."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Answers
    from tests.conftest import RunKforge

JPEG = b"\xff\xd8\xff a screenshot"
QUICK = ("-p", "null", "--no-compile-baseline", "--replications", "0", "--no-sanitize", "-o", "runs", "--json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--image", "words.png", "-m", "exchange"), "cannot use words.png: it is not a PNG, JPEG or WebP image"),
        (("--image", "gone.png", "-m", "exchange"), "cannot read gone.png: No such file or directory"),
        (("--image", "good.jpg") * 9, "at most 8 images can be given, not 9"),
        (("--image", "good.jpg"), "images are for a model, and the built-in analyst reads text only: name a model"),
        (("--profile-as", "image"), "images are for a model, and the built-in analyst reads text only: name a model"),
    ],
    ids=["no image", "missing", "nine", "built-in analyst", "built-in analyst, drawn"],
)
def test_what_cannot_be_shown_is_one_line_before_the_run(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "words.png").write_text("words")
    (tmp_path / "good.jpg").write_bytes(JPEG)
    ran = kforge_in_process("forge", tiny, "-p", "null", "-o", "runs", *arguments)
    assert (ran.status, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"kforge: {said}")
    assert not (tmp_path / "runs").exists()


def test_a_run_waits_with_its_images_and_goes_on_without_the_users_files(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, answers: Answers
) -> None:
    (tmp_path / "screen.jpg").write_bytes(JPEG)
    shown = ("--image", "screen.jpg", "--profile-as", "both")
    ran = kforge_in_process("forge", tiny, "-m", "exchange", "-n", "2", *shown, *QUICK)
    assert ran.status == 75, ran.stderr
    (run,) = (tmp_path / "runs").glob("2*")
    (tmp_path / "screen.jpg").unlink()
    (prompt,) = (run / "exchange").glob("*.prompt.md")
    prompt.with_name(prompt.name.replace(".prompt.", ".reply.")).write_text(answers.slow)
    ran = kforge_in_process("resume", run, "--json")
    assert ran.status == 75, ran.stderr
    (waiting,) = json.loads(ran.stdout)["waiting"]
    identity = waiting.rpartition("/")[2].removesuffix(".prompt.md")
    assert identity == "002-analysis"
    drawn, screenshot = (run / "exchange" / f"{identity}.image-{name}" for name in ("1.png", "2.jpg"))
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert screenshot.read_bytes() == JPEG
    assert f"![{drawn.name}]({drawn.name})" in (run / "exchange" / f"{identity}.prompt.md").read_text()
