"""Metal Shading Language, for Apple GPUs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.dialect import Kernel


class Metal(Dialect):
    """The syntax of the Metal Shading Language."""

    language = "metal"
    calls = MappingProxyType(
        {
            "abs": "fabs", "sqrt": "precise::sqrt", "exp": "precise::exp", "log": "precise::log",
            "tanh": "precise::tanh", "floor": "floor", "ceil": "ceil", "max": "fmax", "min": "fmin",
        }
    )  # fmt: skip
    subgroup = 32
    global_memory = "device "
    unaliased = ""
    prelude = "#include <metal_stdlib>\nusing namespace metal;"

    def is_nan(self, text: str) -> str:
        # tests the bits, because the compiler may assume that there is no NaN
        return f"((as_type<int>({text}) & 0x7fffffff) > 0x7f800000)"

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return f"fma({x}, {y}, {z})"

    def unroll(self) -> str:
        return "#pragma clang loop unroll(full)"

    def barrier(self) -> str:
        return "threadgroup_barrier(mem_flags::mem_threadgroup);"

    def swapped(self, value: str, distance: int) -> str:
        return f"simd_shuffle_xor({value}, {distance})"

    def vector(self, memory: str, index: str, *, constant: bool) -> str:
        return f"*(device {'const ' if constant else ''}float4*)({memory} + {index})"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        return f"{self.vector(memory, index, constant=False)} = float4({', '.join(values)});"

    def head(self, kernel: Kernel) -> list[str]:
        given = [f"{self.declared(each)} [[buffer({place})]]" for place, each in enumerate(kernel.parameters)]
        given.append("uint3 group_position [[threadgroup_position_in_grid]]")
        given.append("uint thread_position [[thread_index_in_threadgroup]]")
        if self.grid(kernel)[1] > 1:
            given.append("uint3 group_count [[threadgroups_per_grid]]")
        return [f"kernel void {kernel.name}({', '.join(given)}) {{"]

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"threadgroup {self.types[kind]} {name}[{count}];"

    def positions(self, kernel: Kernel) -> list[str]:
        lines = [f"const int {THREAD_INDEX} = int(thread_position);"]
        if self.grid(kernel)[1] == 1:
            return [*lines, f"const int {GROUP_INDEX} = int(group_position.x);"]
        group = "int(group_position.y * group_count.x + group_position.x)"
        return [*lines, f"const int {GROUP_INDEX} = {group};", self.leave_extra_groups(kernel)]


DIALECT = Metal()
