"""A tiny problem, what models answer to it, and one finished run that many tests look at."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from tests.cli.screen import Shown, run_in_terminal

from kforge import platforms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROBLEM = '''\
"""Shifts every feature and cuts off what is negative."""

import torch
from torch import nn

ROWS = 16


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.relu(x + self.shift)


def get_inputs():
    return [torch.randn(ROWS, 32)]


def get_init_inputs():
    return [32]
'''


def program(result: str, more_imports: str = "") -> str:
    """A candidate for the tiny problem whose forward returns this expression."""
    return f"""\
import torch
from torch import nn
{more_imports}

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return {result}
"""


def answer(result: str, more_imports: str = "") -> str:
    """What a model that writes this program says."""
    return f"Here is the program.\n\n```python\n{program(result, more_imports)}```\n"


NO_PROGRAM = "I would start by looking at the memory traffic."
WRONG = answer("torch.relu(x)")
WAIT = """\
import time


def waited(result):
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        pass
    return result

"""
"""Awake: whose code does the work of a program that sleeps is looked for in vain for seconds. And so long that nothing
else a busy machine does makes it the surer one: with 2 ms it was once, when others had two thirds of it."""
SLOW = answer("waited(torch.relu(x + self.shift))", WAIT)
FAST = answer("(x + self.shift).relu_()")
ADVICE = json.dumps(
    {
        "bottleneck": "waiting",
        "action": "do not wait",
        "rationale": "nobody waits for it",
        "evidence": "aten::add and aten::relu take microseconds",
        "expected_gain": "100x",
    }
)


class Answers(NamedTuple):
    """The answers of a model, by what comes of them."""

    no_program: str = NO_PROGRAM
    wrong: str = WRONG
    slow: str = SLOW
    advice: str = ADVICE
    fast: str = FAST


class Forged(NamedTuple):
    """A run that went from a failure over repairs to an optimization, and what the command said."""

    folder: Path
    root: Path
    document: dict[str, Any]
    stderr: str


class Terminal(Protocol):
    def __call__(self, *arguments: str | Path, cwd: Path = ..., environment: Mapping[str, str] = ...) -> Shown: ...


@pytest.fixture
def terminal(clean_environment: dict[str, str], tmp_path: Path) -> Terminal:
    """Runs `kforge` in a terminal of 80 columns, in an empty folder unless `cwd` says otherwise."""

    def run(*arguments: str | Path, cwd: Path = tmp_path, environment: Mapping[str, str] | None = None) -> Shown:
        return run_in_terminal(list(map(str, arguments)), cwd, clean_environment | dict(environment or {}))

    return run


@pytest.fixture(scope="session")
def answers() -> Answers:
    return Answers()


@pytest.fixture(scope="session")
def candidate() -> Callable[..., str]:
    return program


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The tiny problem's file."""
    path = tmp_path / "tiny.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture
def small_platform(tmp_path: Path) -> Callable[[str], Path]:
    """Makes the folder of a platform of this name: as `null`, with an example that takes no time."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(platforms.find("null").folder, folder)
        for file, old, new in (
            ("platform.toml", 'name = "null"', f'name = "{name}"'),
            ("example/reference.py", "ROWS = 512\nFEATURES = 1024", "ROWS = 16\nFEATURES = 32"),
        ):
            text = (folder / file).read_text()
            assert old in text
            (folder / file).write_text(text.replace(old, new))
        return folder

    return make


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Names a scripted model that gives these answers."""

    def write(*texts: str) -> str:
        folder = tmp_path / "script"
        folder.mkdir()
        for number, text in enumerate(texts):
            (folder / f"{number}.md").write_text(text)
        return f"scripted:{folder}"

    return write


@pytest.fixture(scope="session")
def forged(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> Forged:
    folder = tmp_path_factory.mktemp("forged")
    (folder / "tiny.py").write_text(PROBLEM)
    (folder / "script.json").write_text(json.dumps([NO_PROGRAM, NO_PROGRAM, WRONG, SLOW, ADVICE, FAST]))
    done = subprocess.run(
        [
            sys.executable, "-m", "kforge", "forge", "tiny.py", "-p", "null", "-m", "scripted:script.json",
            "-n", "4", "--no-compile-baseline", "--json",
        ],
        cwd=folder, env=clean_environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return Forged(Path(document["run"]), folder, document, done.stderr)
