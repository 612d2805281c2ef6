"""The functions of <kforge/math.h> in HIP, which is only compiled without an AMD GPU."""

from __future__ import annotations

import pytest
from benchmarks.building_blocks import FUNCTIONS, LANGUAGES

from kforge import inline
from kforge.inline import CompileError


def test_they_compile() -> None:
    library = inline.compile(LANGUAGES["hip"].source(), "hip")
    assert dir(library) == sorted(f"apply_{name}" for name in FUNCTIONS)


def test_lines_keep_their_numbers() -> None:
    with pytest.raises(CompileError, match=r"kernel\.hip:2:\d+: error: .*nowhere"):
        inline.compile('#include <kforge/math.h>\nextern "C" __global__ void f(float* x) { x[0] = nowhere; }\n', "hip")
