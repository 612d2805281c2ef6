"""CUDA C++, for NVIDIA GPUs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, INDENT, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.dialect import Kernel, Parameter


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

    def vector(self, memory: str, index: str, *, constant: bool) -> str:
        return f"*reinterpret_cast<{'const ' if constant else ''}float4*>({memory} + {index})"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        return f"{self.vector(memory, index, constant=False)} = make_float4({', '.join(values)});"

    def head(self, kernel: Kernel) -> list[str]:
        given = ", ".join(map(self._parameter, kernel.parameters))
        return [f'extern "C" __global__ void __launch_bounds__({kernel.group_size})', f"{kernel.name}({given}) {{"]

    def _parameter(self, parameter: Parameter) -> str:
        constant = "" if parameter.written else "const "
        alone = "" if parameter.shared else "__restrict__ "
        return f"{constant}{self.in_memory(parameter.dtype)}* {alone}{parameter.name}"

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"__shared__ __align__(16) {self.types[kind]} {name}[{count}];"

    def positions(self, kernel: Kernel) -> list[str]:
        lines = [f"const int {THREAD_INDEX} = threadIdx.x;"]
        if self.grid(kernel)[1] == 1:
            return [*lines, f"const int {GROUP_INDEX} = blockIdx.x;"]
        end = f"if ({GROUP_INDEX} >= {kernel.groups}) {{\n{INDENT}{INDENT}return;\n{INDENT}}}"
        return [*lines, f"const int {GROUP_INDEX} = blockIdx.y * gridDim.x + blockIdx.x;", end]


DIALECT = Cuda()
