"""WGSL, the shading language of WebGPU. It differs from C: every conversion is explicit, buffers and shared arrays are
global variables, and there are no pointers, no infinite constants and no integers of 8 or 64 bits."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.smith.languages.simt.dialect import GROUP_INDEX, INDENT, THREAD_INDEX, Dialect

if TYPE_CHECKING:
    from kforge.smith.languages.simt.dialect import Kernel


class Wgsl(Dialect):
    """The syntax of WGSL."""

    language = "webgpu"
    block = "kforge_"
    types = MappingProxyType({"float32": "f32", "int32": "i32", "bool": "bool", "int64": "i32"})
    calls = MappingProxyType(
        {"abs": "abs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "max": "max", "min": "min"}
    )
    most_threads = 256
    most_groups = 65_535
    shared_bytes = 16 << 10
    has_int64 = False
    has_vectors = False
    # lavapipe ends a thread's loops after 65535 steps in all, with wrong results and no error
    unrolls_by_copies = True
    dtypes_as_int32 = frozenset({"bool", "uint8", "int64"})
    # an infinite constant is a compile error, so the bits are read from a variable
    prelude = "var<private> infinite: u32 = 0x7f800000u;\nvar<private> not_a_number: u32 = 0x7fc00000u;"

    def cast(self, kind: str, text: str) -> str:
        return f"{self.types[kind]}({text})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def number(self, value: float) -> str:
        if math.isinf(value):
            return "bitcast<f32>(infinite)" if value > 0 else "(-bitcast<f32>(infinite))"
        return "bitcast<f32>(not_a_number)" if math.isnan(value) else super().number(value)

    def is_nan(self, text: str) -> str:
        # tests the bits, because implementations may assume that there is no NaN
        return f"((bitcast<i32>({text}) & 0x7fffffff) > 0x7f800000)"

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return f"fma({x}, {y}, {z})"

    def declare(self, kind: str, name: str, value: str, *, constant: bool) -> str:
        return f"{'let' if constant else 'var'} {name}: {self.types[kind]} = {value};"

    def array(self, kind: str, name: str, count: int) -> str:
        return f"var {name}: array<{self.types[kind]}, {count}>;"

    def loop(self, kind: str, index: str, start: str, end: str, step: str) -> str:
        return f"for (var {index}: {self.types[kind]} = {start}; {index} < {end}; {index} += {step})"

    def barrier(self) -> str:
        return "workgroupBarrier();"

    def memory(self, kernel: Kernel, name: str) -> str:
        return f"{kernel.name}__{name}"

    def kernel(self, kernel: Kernel) -> str:
        outside = [
            f"@group(0) @binding({place}) var<storage, {'read_write' if each.written else 'read'}> "
            f"{self.memory(kernel, each.name)}: array<{self.in_memory(each.dtype)}>;"
            for place, each in enumerate(kernel.parameters)
        ]
        outside += [
            f"var<workgroup> {self.memory(kernel, name)}: array<{self.types[kind]}, {count}>;"
            for kind, name, count in kernel.arrays
        ]
        given = (
            "@builtin(workgroup_id) group_position: vec3<u32>, @builtin(local_invocation_index) thread_position: u32"
        )
        across, down = self.grid(kernel)
        where = [f"let {THREAD_INDEX}: i32 = i32(thread_position);"]
        if down == 1:
            where.append(f"let {GROUP_INDEX}: i32 = i32(group_position.x);")
        else:
            where.append(f"let {GROUP_INDEX}: i32 = i32(group_position.y) * {across} + i32(group_position.x);")
            where.append(self.leave_extra_groups(kernel))
        head = [f"@compute @workgroup_size({kernel.group_size})", f"fn {kernel.name}({given}) {{"]
        body = [*(INDENT + line for line in where), *kernel.lines, "}"]
        return "\n".join([f"// {kernel.title}", *outside, *head, *body]) + "\n"


DIALECT = Wgsl()
