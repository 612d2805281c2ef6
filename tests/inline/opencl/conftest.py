"""The driver's own cache is one folder of the session: it reads the variable once, when it starts."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield


SCALE = """
__kernel void scale(__global const float* x, __global float* out, int n, float factor) {
    const int i = get_global_id(0);
    if (i < n) out[i] = factor * x[i];
}
"""


@pytest.fixture
def scale_source() -> str:
    return SCALE
