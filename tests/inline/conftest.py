"""Every test builds into a cache of its own."""

import pytest

from kforge import inline
from kforge.inline import configuration


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "cache"))
    return tmp_path / "cache"


SCALE = """
#include <cstdint>
extern "C" void scale(const float* x, float* out, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i) out[i] = factor * x[i];
}
"""


@pytest.fixture
def scale_source():
    return SCALE


@pytest.fixture
def scale(cache):
    return inline.compile(SCALE)
