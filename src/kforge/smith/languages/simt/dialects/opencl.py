"""OpenCL C, version 1.2 and later, for any device."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages.simt.dialect import Kernel


class OpenCl(Dialect):
    """The syntax of OpenCL C."""

    language = "opencl"
    block = "kforge_"
    global_memory = "__global "
    unaliased = "restrict "
    # Not the driver's tanh and erf: PoCL's tanh(-20) is one rounding unit above -1, so that x * (1 + tanh(x)) grows
    # with x instead of vanishing. kforge's functions are exactly -1 and 1 there.
    calls = MappingProxyType(
        {
            "abs": "fabs", "sqrt": "sqrt", "exp": "exp", "log": "log", "expm1": "expm1", "log1p": "log1p",
            "floor": "floor", "ceil": "ceil", "max": "fmax", "min": "fmin",
        }
    )  # fmt: skip

    def in_memory(self, dtype: str) -> str:
        return "uchar" if dtype == "bool" else super().in_memory(dtype)

    def is_nan(self, text: str) -> str:
        return f"isnan({text})"

    def barrier(self) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    def vector(self, memory: str, index: str, *, constant: bool) -> str:  # noqa: ARG002 - other dialects need it
        return f"vload4(0, {memory} + {index})"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        return f"vstore4((float4)({', '.join(values)}), 0, {memory} + {index});"

    def head(self, kernel: Kernel) -> list[str]:
        given = ", ".join(map(self.declared, kernel.parameters))
        size = f"__attribute__((reqd_work_group_size({kernel.group_size}, 1, 1)))"
        return [f"__kernel {size}", f"void {kernel.name}({given}) {{"]

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"__local {self.types[kind]} {name}[{count}];"

    def positions(self, kernel: Kernel) -> list[str]:
        lines = [f"const int {THREAD_INDEX} = get_local_id(0);"]
        if self.grid(kernel)[1] == 1:
            return [*lines, f"const int {GROUP_INDEX} = get_group_id(0);"]
        group = "get_group_id(1) * get_num_groups(0) + get_group_id(0)"
        return [*lines, f"const int {GROUP_INDEX} = {group};", self.leave_extra_groups(kernel)]


DIALECT = OpenCl()
