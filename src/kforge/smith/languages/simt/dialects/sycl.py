"""SYCL C++ as free-function kernels, for Intel's GPUs and for processors."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, INDENT, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.dialect import Kernel

_DIMENSIONS = 2
"""Dimensions of every kernel's launch. The second, `get_group(0)`, is longer than 1 only for more than `most_groups`
groups."""


class Sycl(Dialect):
    """The syntax of SYCL C++."""

    language = "sycl"
    types = MappingProxyType(
        {
            "float32": "float", "int32": "int", "int64": "int64_t", "bool": "bool", "uint8": "uint8_t",
            "uint32": "uint32_t",
        }
    )  # fmt: skip
    # kforge's own tanh and erf, as in OpenCL C: the functions of a driver need not be exactly -1 and 1 far from 0
    calls = MappingProxyType(
        {
            "abs": "sycl::fabs", "sqrt": "sycl::sqrt", "exp": "sycl::exp", "log": "sycl::log", "expm1": "sycl::expm1",
            "log1p": "sycl::log1p", "floor": "sycl::floor", "ceil": "sycl::ceil", "max": "sycl::fmax",
            "min": "sycl::fmin",
        }
    )  # fmt: skip
    prelude = "struct alignas(16) float4 { float x, y, z, w; };"

    def is_nan(self, text: str) -> str:
        return f"sycl::isnan({text})"

    def barrier(self) -> str:
        return "sycl::group_barrier(work.get_group());"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        return f"{self.vector(memory, index, constant=False)} = float4{{{', '.join(values)}}};"

    def head(self, kernel: Kernel) -> list[str]:
        given = ", ".join(map(self.declared, kernel.parameters))
        return [
            f'extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<{_DIMENSIONS}>))',
            f"void {kernel.name}({given}) {{",
            f"{INDENT}const auto work = syclext::this_work_item::get_nd_item<{_DIMENSIONS}>();",
        ]

    def shared_array(self, kind: str, name: str, count: int) -> str:
        # Intel's compiler 2026.2 crashes on group_local_memory_for_overwrite in a kernel that is compiled at run time
        return f"static syclexp::work_group_static<{self.types[kind]}[{count}]> {name};"

    def positions(self, kernel: Kernel) -> list[str]:
        # the last dimension is the first one of a launch
        lines = [f"const int {THREAD_INDEX} = work.get_local_id(1);"]
        if self.grid(kernel)[1] == 1:
            return [*lines, f"const int {GROUP_INDEX} = work.get_group(1);"]
        group = "work.get_group(0) * work.get_group_range(1) + work.get_group(1)"
        return [*lines, f"const int {GROUP_INDEX} = {group};", self.leave_extra_groups(kernel)]


DIALECT = Sycl()
