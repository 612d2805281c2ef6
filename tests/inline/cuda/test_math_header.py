"""The functions of <kforge/math.h> in CUDA: they build without a device, and are measured on one."""

import pytest
from benchmarks.building_blocks import FUNCTIONS, LANGUAGES
from tests.inline.math_functions import build, check_all

from kforge import inline
from kforge.inline import CompileError


@pytest.mark.usefixtures("nvrtc")
def test_they_build():
    library = inline.compile(LANGUAGES["cuda"].source(), "cuda", flags=["-arch=sm_90"])
    assert dir(library) == sorted(f"apply_{name}" for name in FUNCTIONS)


@pytest.mark.usefixtures("nvrtc")
def test_lines_keep_their_numbers():
    with pytest.raises(CompileError, match=r"kernel\.cu\(2\): error: .*nowhere"):
        inline.compile(
            '#include <kforge/math.h>\nextern "C" __global__ void f(float* x) { x[0] = nowhere; }\n',
            "cuda", flags=["-arch=sm_90"],
        )  # fmt: skip


@pytest.mark.device("cuda")
def test_the_errors_are_as_documented():
    check_all(build("cuda"), 14_387, {"exp": 2.0})
