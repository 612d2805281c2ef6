import pytest

from kforge.inline import ToolchainError
from kforge.inline.cuda import toolkit


@pytest.fixture
def nvrtc():
    """The NVRTC of this machine, device or not."""
    try:
        return toolkit.compiler()
    except ToolchainError as error:
        pytest.skip(str(error))


SCALE = r"""
#include <cstdint>
extern "C" __global__ void scale(const float* x, float* out, int64_t n, float factor) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * x[i];
}
"""


@pytest.fixture
def scale_source():
    return SCALE
