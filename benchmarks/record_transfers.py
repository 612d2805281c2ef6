"""Records the transfers of examples/transfer anew, after the prompts have changed.

    python benchmarks/record_transfers.py [NAME ...]

A recording belongs to its prompts. Each transfer is begun again with `--model exchange`, with its CUDA program as the
reference and without it, and the question that waits is answered with the program that was correct in the recording.
That is honest only where a model would still give this answer to the new prompt: read the prompts that are printed.
With `--check` every answer is judged as well. The recorded prompts and replies take the place of the old ones.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kforge.models import Exchange

ROOT = Path(__file__).resolve().parent.parent
TRANSFERS = ROOT / "examples" / "transfer"
CORE = ROOT / "src" / "kforge" / "problems" / "suites" / "core"
OPTIONS = ("--no-compile-baseline", "--no-sanitize", "--replications", "0", "-n", "1", "--json")
SIZES = {
    "causal": ("BATCH=1", "TOKENS=37", "WIDTH=24"),
    "smoothed_cross_entropy": ("ROWS=64", "CLASSES=301"),
    "single_gelu": ("ROWS=64", "COLUMNS=301"),
}
"""Overrides for the transfers that were recorded at other sizes than the suite's."""
PLATFORMS = {"Metal": "metal", "OpenCL": "opencl", "WGSL": "webgpu"}
"""The platform of a recording, by a word of its prompt before the reference program."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true", help="judge the answers as well")
    chosen = parser.parse_args()
    failed = 0
    for folder in sorted(TRANSFERS.iterdir()):
        if folder.is_dir() and (not chosen.names or folder.name in chosen.names):
            failed += not _record(folder, check=chosen.check)
    return 1 if failed else 0


def _record(folder: Path, *, check: bool) -> bool:
    """Record one transfer with and without the reference. Returns False if a judged answer is not correct."""
    program = (folder / "kernel.cu.py").read_text()
    exchange = folder / "exchange"
    answers = {way: _last_reply(exchange, program, with_reference=way) for way in (True, False)}
    platform = _platform(exchange)
    problem = _problem(folder.name, exchange)
    with tempfile.TemporaryDirectory(prefix="kforge-transfer-") as name:
        made, states = Path(name) / "made", []
        made.mkdir()
        for way, answer in answers.items():
            more = ("--reference", folder / "kernel.cu.py", "--reference-platform", "cuda") if way else ()
            sets = [word for each in SIZES.get(folder.name, ()) for word in ("--set", each)]
            states.append(_ask(Path(name) / str(way), made, answer, problem, platform, *sets, *more, check=check))
        shutil.rmtree(exchange)
        shutil.copytree(made, exchange)
    print(f"{folder.name} on {platform}: {', '.join(states)}", flush=True)
    return not check or states == ["correct"] * 2


def _last_reply(exchange: Path, program: str, *, with_reference: bool) -> str:
    """Return the last answer of a recording with or without the reference: that of a repair, if there was one."""
    prompts = [path for path in sorted(exchange.glob("*.prompt.md")) if (program in path.read_text()) is with_reference]
    last = max(prompts, key=lambda path: "# Your last program" in path.read_text())
    return last.with_name(last.name.replace(".prompt.", ".reply.")).read_text()


def _problem(name: str, exchange: Path) -> Path:
    """Return the file of a recording's problem. Two families may have problems of one name, so `forward` decides."""
    prompt = next(exchange.glob("*.prompt.md")).read_text()
    forward = "def forward("
    return next(
        path for path in CORE.glob(f"*/{name}.py") if path.read_text().partition(forward)[2].strip()[:200] in prompt
    )


def _platform(exchange: Path) -> str:
    text = next(exchange.glob("*.prompt.md")).read_text().partition("# A program")[0]
    return next(platform for words, platform in PLATFORMS.items() if words in text)


def _ask(home: Path, made: Path, answer: str, problem: Path, platform: str, *more: object, check: bool) -> str:
    """Begin a run, answer its question, and copy prompt and reply. Returns the state, or that it was not judged."""
    run = Path(_kforge(home, "forge", problem, "-p", platform, "-m", "exchange", *OPTIONS, *more)["run"])
    (waiting,) = Exchange(run / "exchange").waiting()
    waiting.reply.write_text(answer)
    for file in (waiting.prompt, waiting.reply):
        ending = file.name.removeprefix(waiting.name)
        text = file.read_text().replace(f"{waiting.name}.reply", f"{waiting.request.identity}.reply")
        (made / f"{waiting.request.identity}{ending}").write_text(text)
    if not check:
        return "answered, not judged"
    return str(_kforge(home, "resume", run, "--json")["attempts"][0]["state"])


def _kforge(home: Path, *arguments: object) -> dict[str, object]:
    """Run a command as a user whose key and runs are in `home`; exit statuses 0, 1 and 75 are all results."""
    state = {"XDG_STATE_HOME": str(home / "state"), "KFORGE_RUNS": str(home / "runs")}
    command = [sys.executable, "-m", "kforge", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | state, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 75):
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
