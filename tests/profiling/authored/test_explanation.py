"""Samples of a library that is built here: each address of it is one sample."""

import re
import subprocess
from pathlib import Path

import pytest

from kforge import inline
from kforge.inline import cxx
from kforge.profiling.authored import Position, explain, page
from kforge.records import AuthoredCode

SOURCE = """
#include <cmath>
#include <cstdint>
static inline float act(float x) {
    return x / (1 + std::exp(-x));
}
extern "C" void work(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * in[i];
    for (int64_t i = 0; i < n; ++i) {
        out[i] += act(in[i]) * (in[i] + 3) / (in[i] * in[i] + 2) - 5 / (out[i] * out[i] + 4);
    }
}
"""


@pytest.fixture
def built(tmp_path: Path) -> cxx.Built:
    before = inline.configuration.current()
    inline.configure(cache=tmp_path, flags=("-g1",))
    try:
        inline.compile(SOURCE)
    finally:
        inline.configure(cache=before.cache_folder, flags=before.flags)
    return next(one for one in reversed(cxx.built()) if one.source == SOURCE)


def addresses(library: Path) -> list[int]:
    """Every instruction of the kernel."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
    ).stdout
    of_kernel = text.partition("<work>:\n")[2].partition("\n\n")[0]
    return [int(address, 16) for address in re.findall(r"^ *([0-9a-f]+):\t", of_kernel, re.MULTILINE)]


def test_samples_belong_to_loops_and_lines(built: cxx.Built) -> None:
    own = [Position(str(built.path), address, 2) for address in addresses(built.path)]
    total = 2 * len(own) + len(own)
    code = explain([built], [*own, Position("/lib/libm.so.6", 16, len(own))])
    assert (code.samples, code.missing) == (total, "")
    assert code.share == pytest.approx(2 / 3)
    assert code.elsewhere == {"libm.so.6": pytest.approx(1 / 3)}
    loops = {loop.line: loop for loop in code.loops}
    assert loops.keys() == {8, 9}
    assert re.fullmatch(r"vectorized, \d+-byte registers|vectorized, \d+ elements at once", loops[8].report)
    assert loops[9].report.startswith("not vectorized: ")
    assert (loops[9].last, loops[9].function, loops[9].text) == (11, "work", "for (int64_t i = 0; i < n; ++i) {")
    assert {5, 10} <= {line.line for line in code.lines}, "the inlined function's line, and the caller's"
    assert sum(code.registers.values()) == pytest.approx(1)
    assert any(kind.endswith("-byte vectors") for kind in code.registers)


def test_samples_elsewhere_only(built: cxx.Built) -> None:
    code = explain([built], [Position("/lib/libtorch_cpu.so", 1, 9)])
    assert (code.share, code.elsewhere) == (0.0, {"libtorch_cpu.so": 1.0})
    assert code.missing == "no sample was in code that the program has compiled"


def test_no_samples() -> None:
    assert explain([], []) == AuthoredCode(samples=0, share=0.0, missing="no samples were taken")


def test_a_library_that_cannot_be_read_is_told(built: cxx.Built, tmp_path: Path) -> None:
    gone = built._replace(path=tmp_path / "gone.so")
    code = explain([gone], [Position("/elsewhere/gone.so", 64, 1)])
    assert code.share == 1.0
    assert code.missing.startswith("no lines or registers: ")


def test_the_page_shows_loops_and_the_lines_that_are_no_whole_loop() -> None:
    code = AuthoredCode.from_json(
        """{"samples": 200, "share": 0.75, "registers": {"16-byte vectors": 0.9, "scalar floating point": 0.1},
        "loops": [{"function": "work", "line": 8, "last": 8, "text": "for …", "share": 0.5, "report": "vectorized"},
                  {"function": "work", "line": 9, "last": 11, "text": "for …", "share": 0.25}],
        "lines": [{"function": "work", "line": 8, "text": "for …", "share": 0.5},
                  {"function": "work", "line": 10, "text": "x;", "share": 0.2}],
        "elsewhere": {"libm.so.6": 0.15, "libgomp.so.1": 0.1}}"""
    )
    assert page.lines(code) == [
        "",
        "Inside the program's kernels (200 samples of running threads, 75% of them there)",
        "  50.0%  loop in work, line 8: for …",
        "         vectorized",
        "  25.0%  loop in work, lines 9-11: for …",
        "  20.0%  line 10 (work): x;",
        "  instructions sampled  16-byte vectors 90%, scalar floating point 10%",
        "  outside kernels       libm.so.6 15% (calls of <cmath>), libgomp.so.1 10% (threads that wait for others)",
        page.COUNTED_FROM,
    ]


def test_the_page_tells_events_or_why_there_are_none() -> None:
    code = AuthoredCode(samples=9, share=0.0, counters={"cycles": 2e6, "instructions": 3e6, "cache misses": 1200.0})
    assert "  counted in a call     1.50 instructions a cycle, 3 M instructions, 1.2 k cache misses" in page.lines(code)
    none = AuthoredCode(samples=9, share=0.0, uncounted="it is a virtual machine")
    assert "  hardware counters     not available on this machine: it is a virtual machine" in page.lines(none)
