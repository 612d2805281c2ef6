"""Kernels whose only fault is in memory, in real workers under the compiler's sanitizers, behind each layer."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.evaluation.kernel_layers import skip_if_missing

from kforge import platforms, problems
from kforge.errors import InputError
from kforge.evaluation import Judge
from kforge.evaluation.processes import freeze
from kforge.evaluation.referee.sanitizer_run import quoted
from kforge.evaluation.sandbox import LADDER
from kforge.platforms import Sanitizer, asan
from kforge.records import (
    Candidate,
    EvaluationLimits,
    Mismatch,
    NotSanitized,
    Problem,
    RuntimeFailure,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUND = asan.find()
pytestmark = pytest.mark.skipif(not isinstance(FOUND, Sanitizer), reason=getattr(FOUND, "reason", ""))

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(7, 33)]

def get_init_inputs():
    return [33]
"""

PROGRAM = '''
import os, signal, time
import torch
from torch import nn
from kforge import inline
{prelude}
library = inline.compile(r"""
#include <cstdint>
extern "C" void scale(const float* x, const float* weight, float* out, int64_t rows, int64_t columns) {{
    {kernel}
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < columns; ++i) out[row * columns + i] = x[row * columns + i] * weight[i];
    {after}
}}
""")

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        {python}
        out = torch.empty_like(x)
        library.scale(x, self.weight, out, *x.shape)
        return out
'''


PLAIN = PROBLEM.replace("class Model", "class ModelNew")


def program(kernel: str = "", *, after: str = "", python: str = "pass", prelude: str = "") -> str:
    return PROGRAM.format(kernel=kernel, after=after, python=python, prelude=prelude)


DEADLINE = 8.0
"""Seconds: the test of a program that hangs waits for it, and no other call comes near it."""


def judge_with(cache: Path, path: str = os.environ["PATH"], **options: object) -> Judge:
    environment = {"PATH": path, "HOME": os.environ["HOME"]}
    return Judge(platforms.find("cpu"), cache=cache, environment=environment, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge_with(tmp_path_factory.mktemp("cache"), limits=EvaluationLimits(call_deadline=DEADLINE)) as judge:
        yield judge


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(PROBLEM)
    return problems.load(path)


def sanitize(judge: Judge, problem: Problem, source: str) -> Sanitization:
    return judge.sanitize(problem, Candidate(source=source, platform="cpu"))


def found(judge: Judge, problem: Problem, source: str) -> RuntimeFailure:
    outcome = sanitize(judge, problem, source).outcome
    assert isinstance(outcome, SanitizerFinding), outcome
    assert isinstance(outcome.failure, RuntimeFailure)
    assert outcome.failure.fault == "died"
    assert len(outcome.failure.log.splitlines()) <= 12
    assert "0x" not in outcome.failure.log
    return outcome.failure


def with_a_hidden_runtime(folder: Path) -> str:
    """A PATH with a compiler whose sanitizer runtime no sandbox shows. It is loaded before a worker is behind its
    border."""
    assert isinstance(FOUND, Sanitizer)
    (folder / "private").mkdir()
    hidden = folder / "private" / "libasan.so"
    shutil.copy(FOUND.runtimes[0], hidden)
    return compiler(folder / "tools", str(hidden))


@pytest.mark.parametrize("hidden", [True, pytest.param(False, marks=pytest.mark.volume)])
@pytest.mark.parametrize("layer", LADDER[1:])  # behind the first that works is all the rest here
def test_behind_every_layer(layer: str, hidden: bool, problem: Problem, tmp_path: Path) -> None:
    path = with_a_hidden_runtime(tmp_path) if hidden else os.environ["PATH"]
    with judge_with(tmp_path / "cache", path, ladder=(layer,)) as judge:
        try:
            judge.describe(problem)
            clean = sanitize(judge, problem, program())
        except InputError:
            skip_if_missing(layer)
            raise
        assert isinstance(clean.outcome, SanitizedClean), clean
        read = found(judge, problem, program("volatile float beyond = x[rows * columns]; (void)beyond;"))
        assert read.reason.startswith("AddressSanitizer: heap-buffer-overflow, READ of size 4 in scale at kernel.cpp:4")


def test_a_clean_kernel_is_clean_and_its_builds_lie_apart(problem: Problem, judge: Judge) -> None:
    outcome = sanitize(judge, problem, program()).outcome
    assert isinstance(FOUND, Sanitizer)
    assert outcome == SanitizedClean(sanitizer=FOUND.name, cases=4)
    builds = Path(judge._setup.cache) / "builds"
    assert len(list(builds.glob("*/sanitized/*.so"))) == 1
    assert list(builds.glob("*/inline/*.so")) == []


def test_workers_are_copies_of_a_process_that_is_replaced_when_it_dies(judge: Judge, problem: Problem) -> None:
    assert isinstance(sanitize(judge, problem, program()).outcome, SanitizedClean)
    (fork_server,) = under_a_sanitizer()
    assert isinstance(sanitize(judge, problem, program()).outcome, SanitizedClean)
    assert under_a_sanitizer() == [fork_server]
    os.kill(fork_server, signal.SIGKILL)
    assert isinstance(sanitize(judge, problem, program()).outcome, SanitizedClean)
    (other,) = under_a_sanitizer()
    assert other != fork_server


def under_a_sanitizer() -> list[int]:
    """Of our processes those that were started with its runtime, and the small ones that it forked are not."""
    assert isinstance(FOUND, Sanitizer)
    mark = f"LD_PRELOAD={FOUND.environment['LD_PRELOAD']}".encode()
    found = []
    for pid in freeze.descendants(os.getpid()):
        with suppress(OSError):
            started = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_marked = mark in _environment(pid)
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if (
                is_marked
                and b"kforge.evaluation.processes.worker_fork_server" in started
                and mark not in _environment(parent)
            ):
                found.append(pid)
    return found


def _environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_a_read_past_an_input(judge: Judge, problem: Problem) -> None:
    failure = found(judge, problem, program("volatile float beyond = x[rows * columns]; (void)beyond;"))
    assert failure.reason == (
        "AddressSanitizer: heap-buffer-overflow, READ of size 4 in scale at kernel.cpp:4, 0 bytes after 924-byte region"
    )
    assert failure.log.splitlines() == [
        "AddressSanitizer: heap-buffer-overflow",
        "READ of size 4",
        "    in scale at kernel.cpp:4",
        "0 bytes after 924-byte region",
        "allocated:",
        "    in torch, for a tensor",
        "kernel.cpp:4: volatile float beyond = x[rows * columns]; (void)beyond;",
    ]


def test_a_read_past_a_parameter_in_a_thread_of_openmp(judge: Judge, problem: Problem) -> None:
    kernel = (
        "#pragma omp parallel for\n for (int64_t i = 0; i <= columns; ++i) { volatile float w = weight[i]; (void)w; }"
    )
    assert ", READ of size 4 in scale at kernel.cpp:5, 0 bytes after 132-byte" in (
        found(judge, problem, program(kernel)).reason
    )


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (
            "float* row = new float[columns]; row[columns] = 0; out[0] = row[columns - 1]; delete[] row;",
            "AddressSanitizer: heap-buffer-overflow, WRITE of size 4 in scale at kernel.cpp:4, 0 bytes after 132-byte",
        ),
        pytest.param(
            "volatile float* row = new float[columns]; row[0] = 0; delete[] row; out[0] = row[0];",
            "AddressSanitizer: heap-use-after-free, READ of size 4 in scale at kernel.cpp:4",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "float row[32]; for (int64_t i = 0; i < columns; ++i) ((volatile float*)row)[i] = 0;",
            "UndefinedBehaviorSanitizer: store to address with insufficient space for an object of type 'volatile",
            marks=pytest.mark.volume,
        ),
        (
            "volatile int32_t most = 2147483647; volatile int32_t more = most + (int32_t)rows; (void)more;",
            "UndefinedBehaviorSanitizer: signed integer overflow: 7 + 2147483647 cannot be represented in type 'int'",
        ),
        pytest.param(
            "volatile int32_t bit = 1 << (int32_t)columns; (void)bit;",
            "UndefinedBehaviorSanitizer: shift exponent 33 is too large for 32-bit type 'int' in scale at kernel.cpp:4",
            marks=pytest.mark.volume,
        ),
        (
            "volatile float odd = *(const float*)((const char*)x + 1); (void)odd;",
            "UndefinedBehaviorSanitizer: load of misaligned address for type 'const float', which requires 4 byte",
        ),
        pytest.param(
            "volatile float wild = x[columns << 40]; (void)wild;",
            "AddressSanitizer: SEGV, READ in scale at kernel.cpp:4",
            marks=pytest.mark.volume,
        ),
    ],
    ids=["write", "freed", "stack", "overflow", "shift", "misaligned", "wild"],
)  # those of volume are of the same kinds
def test_what_a_kernel_must_not_do(judge: Judge, problem: Problem, kernel: str, words: str) -> None:
    assert words in found(judge, problem, program(kernel)).reason


def test_memory_that_is_used_before_it_is_written(judge: Judge, problem: Problem) -> None:
    fresh = "volatile float* sum = new float[64]; out[0] += 0 * sum[5]; delete[] sum;"
    outcome = sanitize(judge, problem, program(after=fresh)).outcome
    assert isinstance(outcome, SanitizerFinding)
    assert isinstance(outcome.failure, Mismatch)
    assert "where memory that was never written holds NaN: output" in outcome.failure.reason


@pytest.mark.slow
def test_a_program_that_fails_only_now_is_a_finding(judge: Judge, problem: Problem) -> None:
    raised = sanitize(judge, problem, program(python="raise ValueError('no')")).finding
    assert raised is not None
    assert raised.failure.reason == "ValueError: no"
    left = sanitize(judge, problem, program(python="os._exit(0)")).finding
    assert left is not None
    assert "exited with status 0" in left.failure.reason


@pytest.mark.slow  # not one of them, but all together
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (program(prelude="inline.configure(flags=())"), "only what kforge.inline builds is instrumented"),
        (program("an error here"), "the program does not build with ASan and UBSan of"),
        (program(python="os.kill(os.getpid(), signal.SIGKILL)"), "was killed by SIGKILL under ASan"),
        (PLAIN, "nothing here is: it builds none"),
    ],
    ids=["without flags", "does not build", "killed", "plain torch"],
)
def test_what_says_nothing_about_a_program(judge: Judge, problem: Problem, source: str, reason: str) -> None:
    outcome = sanitize(judge, problem, source).outcome
    assert isinstance(outcome, NotSanitized), outcome
    assert reason in outcome.reason
    assert "\n" not in outcome.reason


def test_a_program_that_hangs_is_stopped_and_proves_nothing(judge: Judge, problem: Problem) -> None:
    outcome = sanitize(judge, problem, program(python="time.sleep(60)")).outcome
    assert isinstance(outcome, NotSanitized)
    assert outcome.reason.endswith("no answer to call within 8 s")


def compiler(folder: Path, libasan: str) -> str:
    """A PATH with a g++ that knows of another sanitizer runtime."""
    folder.mkdir()
    tool = folder / "g++"
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = -print-file-name=libasan.so ] && echo {libasan} && exit\nexec g++.real "$@"\n'
    )
    tool.chmod(0o755)
    (folder / "g++.real").symlink_to(shutil.which("g++") or "g++")
    return f"{folder}:{os.environ['PATH']}"


def test_a_compiler_without_a_sanitizer(problem: Problem, tmp_path: Path) -> None:
    path = compiler(tmp_path / "tools", "libasan.so")
    with judge_with(tmp_path / "cache", path) as judge:
        outcome = sanitize(judge, problem, program()).outcome
    assert isinstance(outcome, NotSanitized)
    assert outcome.reason.endswith("/g++ has no libasan.so; install the compiler's sanitizer libraries")


def test_a_runtime_that_cannot_be_loaded(problem: Problem, tmp_path: Path) -> None:
    broken = tmp_path / "libasan.so"
    broken.write_bytes(b"\x7fELF and nothing more")
    with judge_with(tmp_path / "cache", compiler(tmp_path / "tools", str(broken))) as judge:
        outcome = sanitize(judge, problem, program()).outcome
    assert outcome == NotSanitized(reason=f"{broken} cannot be loaded")


@pytest.mark.volume  # test_behind_every_layer has such a runtime, too
def test_a_runtime_that_the_sandbox_does_not_show(problem: Problem, tmp_path: Path) -> None:
    with judge_with(tmp_path / "cache", with_a_hidden_runtime(tmp_path)) as judge:
        found(judge, problem, program("volatile float beyond = x[rows * columns]; (void)beyond;"))


def test_what_the_scan_turns_down_is_not_run(judge: Judge, problem: Problem) -> None:
    outcome = sanitize(judge, problem, PROBLEM).outcome
    assert isinstance(outcome, NotSanitized)
    assert outcome.reason == "the program was not run: the program does not define ModelNew"


def test_a_platform_without_one_says_so(problem: Problem, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Judge(platforms.find("null"), cache=tmp_path, environment=environment) as judge:
        outcome = sanitize(judge, problem, PLAIN).outcome
    assert outcome == NotSanitized(reason="the platform 'null' has no sanitizer")


def test_the_line_is_quoted_only_where_there_is_no_doubt() -> None:
    log = "UndefinedBehaviorSanitizer: x\n    in scale at kernel.cpp:2\n    in scale at kernel.cpp:9"
    kernel = '"""\nvoid scale() {}\n"""'
    assert quoted(f"a = {kernel}", log) == ["kernel.cpp:2: void scale() {}"]
    assert quoted(f"a = {kernel}; b = {kernel}", log) == []
    assert quoted("a = 1", log) == []


def test_a_load_inline_candidate_is_not_looked_at(judge: Judge, problem: Problem) -> None:
    # without torch's headers, which take half a minute to compile
    built = "load_inline('plain', 'int one() { return 1; }', is_python_module=False, no_implicit_headers=True)"
    source = f"from torch.utils.cpp_extension import load_inline\n{built}\n{PLAIN}"
    outcome = sanitize(judge, problem, source).outcome
    assert isinstance(outcome, NotSanitized)
    assert outcome.reason.endswith("nothing here is: it builds through torch.utils.cpp_extension")


@pytest.mark.volume  # another way to a runtime that cannot be loaded
def test_a_folder_that_cannot_be_said_to_the_loader(problem: Problem, tmp_path: Path) -> None:
    """What makes tensors visible to the sanitizer lies in the user's cache; without it nothing is called clean."""
    home = tmp_path / "two words"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with Judge(platforms.find("cpu"), cache=tmp_path / "cache", environment=environment) as judge:
        outcome = sanitize(judge, problem, program()).outcome
    assert isinstance(outcome, NotSanitized), outcome
    assert "/two words/" in outcome.reason
    assert outcome.reason.endswith(" cannot be loaded")
