"""`eval`: each of the six states, as a document and as an exit status; `profile`: the page for the analysis agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kforge.cli.output import words
from kforge.records import Sanitization, SanitizedClean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunKforge

ALWAYS = {"state", "labels", "receipt"}
KEYS = {
    "generation_failure": {"reason"},
    "compilation_failure": {"reason", "log"},
    "runtime_error": {"reason", "fault", "log"},
    "mismatch": {"reason", "kind", "case", "max_error", "tolerance"},
    "rejected": {"reason", "rule"},
    "correct": {"max_error", "tolerance", "cases", "seconds", "pairs", "speedup", "baselines", "findings"},
}


def nulls(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(nulls, value.values()))
    return any(map(nulls, value)) if isinstance(value, list) else value is None


@pytest.mark.parametrize("state", KEYS)
def test_a_prepared_candidate_has_its_state(kforge_in_process: RunKforge, root: Path, state: str) -> None:
    example = root / "examples" / "softmax_scale"
    ran = kforge_in_process(
        "eval", example / "problem.py", example / "candidates" / f"{state}.py",
        "-p", "cpu", "--set", "ROWS=64", "--no-compile-baseline", "--json",
    )  # fmt: skip
    document = json.loads(ran.stdout)
    assert document["state"] == state
    assert ran.status == (0 if state == "correct" else 1)
    assert set(document) - {"doubts"} == ALWAYS | KEYS[state]
    assert not nulls(document)
    receipt = document["receipt"]
    assert (receipt["platform"], receipt["precision"]) == ("cpu", "strict")
    assert len(receipt["problem"]) == len(receipt["candidate"]) == 64
    if state == "correct":
        assert set(document["speedup"]) == {"eager"}
        for interval in (document["speedup"]["eager"], document["seconds"]):
            assert 0 < interval["low"] <= interval["median"] <= interval["high"]
        assert document["max_error"] <= document["tolerance"]
        assert len(receipt["samples"]["candidate"]) == len(receipt["samples"]["eager"]) == document["pairs"]


def test_words_instead_of_json(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[[str], str]
) -> None:
    (tmp_path / "wrong.py").write_text(candidate("torch.relu(x)[:, :3]"))
    ran = kforge_in_process("eval", tiny, tmp_path / "wrong.py", "-p", "null", "--set", "ROWS=3", "--sanitize")
    assert ran.status == 1
    assert ran.stdout.startswith("mismatch: output must have shape [3, 32], got [3, 3]")
    assert "sanitizer" not in ran.stdout, "what is wrong is not looked at any further"


def test_profile(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[[str], str]) -> None:
    (tmp_path / "fast.py").write_text(candidate("(x + self.shift).relu_()"))
    ran = kforge_in_process("profile", tiny, tmp_path / "fast.py", "-p", "null", "--json")
    assert ran.status == 0
    page = json.loads(ran.stdout)
    assert {"aten::add", "aten::relu_"} <= {spot["name"] for spot in page["hot_spots"]}
    assert page["digest_text"].strip()
    assert page["roofline"]["peaks"]["bytes_per_second"] > 0


SANITIZED = '''
from kforge import inline
library = inline.compile(r"""
#include <cstdint>
extern "C" void shift(const float* x, const float* by, float* out, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < columns; ++i) {
            const float y = x[row * columns + i] + by[i];
            out[row * columns + i] = y > 0 ? y : 0;
        }
    volatile float last = x[rows * columns];
    (void)last;
}
""")

def shifted(x, by):
    out = torch.empty_like(x)
    library.shift(x, by, out, *x.shape)
    return out
'''


@pytest.mark.slow
def test_a_correct_candidate_is_sanitized_too(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    (tmp_path / "beyond.py").write_text(candidate("shifted(x, self.shift)", SANITIZED))
    options = ("-p", "cpu", "--no-compile-baseline", "--sanitize", "--json")
    beyond = kforge_in_process("eval", tiny, tmp_path / "beyond.py", *options)
    assert beyond.status == 1, beyond
    document = json.loads(beyond.stdout)
    assert (document["state"], document["sanitizer"]["state"]) == ("correct", "finding")
    failure = document["sanitizer"]["failure"]
    assert failure["reason"].startswith(
        "AddressSanitizer: heap-buffer-overflow, READ of size 4 in shift at kernel.cpp:9"
    )
    assert failure["log"].endswith("kernel.cpp:9: volatile float last = x[rows * columns];")


def test_where_there_is_no_sanitizer_it_is_said_in_one_line(
    kforge: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    (tmp_path / "fast.py").write_text(candidate("(x + self.shift).relu_()"))
    options = ("-p", "null", "--no-compile-baseline", "--sanitize")
    ran = kforge("eval", tiny, tmp_path / "fast.py", *options)
    assert ran.status == 0, ran
    assert "\nsanitizer: not run: the platform 'null' has no sanitizer\n" in ran.stdout


def test_a_clean_program_in_words() -> None:
    clean = SanitizedClean(sanitizer="ASan and UBSan of g++ 12", cases=4)
    assert words.sanitized(Sanitization(outcome=clean)) == "sanitizer: clean (ASan and UBSan of g++ 12, 4 cases)"
