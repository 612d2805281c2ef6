"""The functions of <kforge/math.h> in SYCL, on the device at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.inline.math_functions import build, check_all

from kforge import inline
from kforge.inline import CompileError, configuration
from kforge.inline.sycl import packages

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    try:
        packages.find()
    except inline.ToolchainError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        settings = configuration.Configuration(cache=tmp_path_factory.mktemp("builds"))
        patch.setattr(configuration, "_current", settings)
        yield


def test_the_errors_are_as_documented() -> None:
    check_all(build("sycl"), 14_387)


def test_an_unknown_header_is_an_error_with_its_line() -> None:
    source = """#include <kforge/maths.h>
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void f(float* x) { x[0] = 1; }
"""
    with pytest.raises(CompileError, match=r"kernel\.cpp:1: error: there is no header <kforge/maths\.h>"):
        inline.compile(source, "sycl")
