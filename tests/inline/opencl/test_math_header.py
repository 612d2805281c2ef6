"""The functions of <kforge/math.h> in OpenCL C, on the device at hand."""

from __future__ import annotations

import pytest
from tests.inline.math_functions import build, check_all

from kforge import inline
from kforge.inline import CompileError


def test_the_errors_are_as_documented() -> None:
    check_all(build("opencl"), 14_387)


def test_an_unknown_header_is_an_error_with_its_line() -> None:
    with pytest.raises(CompileError, match=r"kernel\.cl:2: error: there is no header <kforge/maths\.h>"):
        inline.compile("\n#include <kforge/maths.h>\n", "opencl")


def test_lines_keep_their_numbers() -> None:
    with pytest.raises(CompileError, match=r"kernel\.cl:3:\d+: error: "):
        inline.compile("\n#include <kforge/math.h>\n__kernel void f(__global float* x) { x[0] = nowhere; }\n", "opencl")
