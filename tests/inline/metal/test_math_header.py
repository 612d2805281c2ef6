"""The functions of <kforge/math.h> in Metal, in the emulator."""

from __future__ import annotations

import pytest
from tests.inline.math_functions import build, check_all

from kforge import inline
from kforge.inline import CompileError, metal


def test_the_errors_are_as_documented() -> None:
    check_all(build("metal"), 60_013)


def test_lines_keep_their_numbers() -> None:
    with pytest.raises(CompileError, match=r"kernel\.metal:3:\d+: error: .*nowhere"):
        inline.compile("\n#include <kforge/math.h>\nkernel void f(device float* x) { x[0] = nowhere; }\n", "metal")


def test_torchs_own_function_does_not_know_the_header_as_on_a_mac() -> None:
    with pytest.raises(CompileError, match=r"kforge/math\.h"):
        metal.compile_shader("#include <kforge/math.h>\nkernel void f(device float* x) { x[0] = 1; }\n")
