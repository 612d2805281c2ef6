"""CUDA C++, for NVIDIA GPUs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.dialect import Kernel


class Cuda(Dialect):
    """The syntax of CUDA C++."""

    language = "cuda"
    types = MappingProxyType(
        {"float32": "float", "int32": "int", "int64": "int64_t", "bool": "bool", "uint8": "uint8_t"}
    )
    calls = MappingProxyType(
        {
            "abs": "fabsf", "sqrt": "sqrtf", "exp": "expf", "log": "logf", "expm1": "expm1f", "log1p": "log1pf",
            "tanh": "tanhf", "erf": "erff", "floor": "floorf", "ceil": "ceilf", "max": "fmaxf", "min": "fminf",
        }
    )  # fmt: skip
    subgroup = 32
    shared_bytes = 48 << 10
    library_products = True
    mask = "0xffffffffu, "
    """First argument of a shuffle: the mask of the threads that take part, here all 32."""
    shuffle = "__shfl_xor_sync"

    def barrier(self) -> str:
        return "__syncthreads();"

    def swapped(self, value: str, distance: int) -> str:
        return f"{self.shuffle}({self.mask}{value}, {distance})"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        return f"{self.vector(memory, index, constant=False)} = make_float4({', '.join(values)});"

    def head(self, kernel: Kernel) -> list[str]:
        given = ", ".join(map(self.declared, kernel.parameters))
        return [f'extern "C" __global__ void __launch_bounds__({kernel.group_size})', f"{kernel.name}({given}) {{"]

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"__shared__ __align__(16) {self.types[kind]} {name}[{count}];"

    def positions(self, kernel: Kernel) -> list[str]:
        lines = [f"const int {THREAD_INDEX} = threadIdx.x;"]
        if self.grid(kernel)[1] == 1:
            return [*lines, f"const int {GROUP_INDEX} = blockIdx.x;"]
        group = "blockIdx.y * gridDim.x + blockIdx.x"
        return [*lines, f"const int {GROUP_INDEX} = {group};", self.leave_extra_groups(kernel)]


DIALECT = Cuda()
