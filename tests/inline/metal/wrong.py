"""Kernels that are wrong, each with the line that must be named: `// !` marks it (two marks: either line will do)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tests.inline.metal import groups
from tests.inline.metal.case import HEAD, Case

PARAMETERS = (
    "device float* out, device const float* x, uint i [[thread_position_in_grid]], "
    "uint lid [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]"
)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@dataclass(frozen=True)
class Wrong:
    name: str
    source: str
    message: str
    launch: dict[str, Any] = field(default_factory=dict)
    count: int = 64

    def __str__(self) -> str:
        return self.name

    def lines(self, text: str) -> list[int]:
        """The marked lines, in a text that contains the source."""
        start = text.index(self.source)
        before = text.count("\n", 0, start)
        return [before + number for number, line in enumerate(self.source.split("\n"), start=1) if "// !" in line]

    def call(self, library: Any) -> None:
        out = torch.zeros(self.count)
        getattr(library, self.name)(out, torch.ones(64), **{"threads": 64, "group_size": 64, **self.launch})


def body(name: str, text: str, message: str, before: str = "", **more: Any) -> Wrong:
    source = f"{before}kernel void {name}({PARAMETERS}) {{\n{text.strip()}\n}}\n"
    return Wrong(name, source, message, **more)


def refused(name: str, text: str, message: str) -> Wrong:
    """A whole source that must not compile."""
    return Wrong(name, text.strip() + "\n", message)


ADD = "kernel void add(device float* out, uint i [[thread_position_in_grid]]) { out[i] = 1; }\n"

DOES_NOT_COMPILE: list[Wrong] = [
    # types and names
    body("undeclared", "out[i] = x[i] +\n missing; // !", "undeclared identifier 'missing'"),
    body("wrong_type", "float4 v = x[i];\nint2 w = v; // !\nout[i] = w.x;", "no viable conversion"),
    body("vector_mismatch", "float4 a = 1; float3 b = 2;\nout[i] = (a + b).x; // !", "invalid operands"),
    body("mixed_vectors", "float4 a = 1; half4 b = 2;\nout[i] = (a * b).x; // !", "invalid operands"),
    body("too_many_components", "float4 v = 0;\nv = float4(1, 2, 3, 4, 5); // !\nout[i] = v.x;", "no matching"),
    body("no_such_component", "float2 v = 1;\nout[i] = v.z; // !", "no member named 'z'"),
    body("no_such_swizzle", "float2 v = 1;\nout[i] = v.xyz.x; // !", "no such component"),
    body("ambiguous_max", "out[i] = max(x[i], 0); // !", "no matching function for call to 'max'"),
    body("ambiguous_min", "out[i] = min(i, 3); // !", "no matching function for call to 'min'"),
    body("ambiguous_clamp", "out[i] = clamp(x[i], 0, 1); // !", "no matching function for call to 'clamp'"),
    body("double_type", "double v = x[i]; // !\nout[i] = v;", "'double' is not supported in Metal"),
    body("missing_semicolon", "float v = x[i] // !\nout[i] = v;", "expected ';'"),
    body("wrong_argument_count", "out[i] = pow(x[i]); // !", "no matching function"),
    body("as_type_size", "out[i] = as_type<float>(ushort(3)); // !", "same size"),
    body("variable_length", "int n = int(x[i]);\nfloat a[n]; // !\na[0] = 1; out[i] = a[0];", "variable length array"),
    body("goto_statement", "goto end; // !\nend: out[i] = 1;", "'goto' is not supported in Metal"),
    body("new_expression", "out[i] = *(new float(1)); // !", "'new' is not supported in Metal"),
    body("atomic_plain", "device atomic_int* p = (device atomic_int*)out;\np[0] = 3; // !", "overload"),
    body("atomic_float_max", "device atomic_float* p = (device atomic_float*)out;\natomic_fetch_max_explicit(p, 1.0f, memory_order_relaxed); // !", "no version for floating point"),
    body("matrix_size", "simdgroup_matrix<float, 4, 4> m; // !\nout[i] = m.thread_elements()[0];", "8 by 8"),
    # address spaces
    body("device_from_threadgroup", "threadgroup float t[64];\ndevice float* p = t; // !\nout[i] = p[0];", "device float"),
    body("threadgroup_from_device", "threadgroup float* p = out; // !\np[0] = 1;", "threadgroup float"),
    body("thread_from_device", "thread float* p = out + i; // !\n*p = 1;", "device float"),
    body("device_from_local", "float v = 1;\ndevice float* p = &v; // !\nout[i] = *p;", "device float"),
    body("assigned_space", "threadgroup float t[64];\ndevice float* p = out;\np = &t[lid]; // !\n*p = 1;", "changes address space"),
    body("argument_space", "threadgroup float t[64]; t[lid] = 1;\nout[i] = first(t); // !", "no matching function for call to 'first'", before="float first(device const float* p) { return p[0]; }\n"),
    body("reference_space", "raise(out[i]); // !", "no matching function for call to 'raise'", before="void raise(thread float& v) { v += 1; }\n"),
    body("returned_space", "out[i] = *place(out, i);", "device float", before="thread float* place(device float* p, uint i) {\n return p + i; // !\n}\n"),
    body("constant_pointer_write", "table[0] = x[i]; // !", "const", before="constant float table[2] = {1, 2};\n"),
    body("const_buffer_write", "x[i] = 1; // !", "read-only"),
    body("constant_from_device", "constant float* p = out; // !\nout[i] = p[0];", "constant"),
    refused("pointer_without_space", HEAD + "float first(float* p) { return p[0]; } // !\n" + ADD, "pointer type must have explicit address space"),
    refused("reference_without_space", HEAD + "void raise(float& v) { v += 1; } // !\n" + ADD, "reference type must have explicit address space"),
    refused("local_pointer_without_space", HEAD + "kernel void f(device float* out) {\n float v = 1;\n float* p = &v; // !\n out[0] = *p;\n}", "explicit address space"),
    refused("cast_without_space", HEAD + "kernel void f(device float* out) {\n out[0] = *(float*)(out + 1); // !\n}", "explicit address space"),
    refused("parameter_without_space", HEAD + "kernel void f(float* out, // !\n uint i [[thread_position_in_grid]]) { out[i] = 1; }", "explicit address space"),
    refused("kernel_thread_pointer", HEAD + "kernel void f(thread float* out) { out[0] = 1; } // !", "explicit address space"),
    # kernels and attributes
    refused("value_without_attribute", HEAD + "kernel void f(device float* out,\n uint n) { out[0] = n; } // !", "needs an attribute"),
    refused("unknown_attribute", HEAD + "kernel void f(device float* out,\n uint i [[thread_position_in_gird]]) { out[i] = 1; } // !", "unknown attribute 'thread_position_in_gird'"),
    refused("attribute_type", HEAD + "kernel void f(device float* out,\n float i [[thread_position_in_grid]]) { out[0] = i; } // !", "not valid for attribute"),
    refused("attribute_vector_type", HEAD + "kernel void f(device float* out,\n uint2 i [[thread_index_in_simdgroup]]) { out[0] = i.x; } // !", "not valid for attribute"),
    refused("buffer_twice", HEAD + "kernel void f(device float* out [[buffer(0)]],\n device float* x [[buffer(0)]]) { out[0] = x[0]; } // !", "cannot reserve 'buffer' resource location at index 0"),
    refused("buffer_index", HEAD + "kernel void f(device float* out [[buffer(40)]]) { out[0] = 1; } // !", "out of bounds"),
    refused("kernel_returns", HEAD + "kernel float f(device float* out) { return out[0]; } // !", "must return void"),
    refused("fragment_function", HEAD + "fragment float4 f() { return 0; } // !\n" + ADD, "only compute kernels"),
    refused("threadgroup_in_helper", HEAD + "float f(float v) {\n threadgroup float t[4]; // !\n t[0] = v; return t[0];\n}\n" + ADD, "must be declared in a kernel"),
    refused("threadgroup_initializer", HEAD + "kernel void f(device float* out) {\n threadgroup float t = 0; // !\n out[0] = t;\n}", "initialization is not supported"),
    refused("program_scope_variable", HEAD + "float table[2] = {1, 2}; // !\n" + ADD, "must reside in constant address space"),
    refused("program_scope_counter", HEAD + "static int counter; // !\n" + ADD, "must reside in constant address space"),
    refused("program_scope_threadgroup", HEAD + "threadgroup float t[4]; // !\n" + ADD, "must reside in constant address space"),
    refused("static_local", HEAD + "kernel void f(device float* out) {\n static float v; // !\n v += 1; out[0] = v;\n}", "must reside in constant address space"),
    refused("threadgroup_in_method", HEAD + "struct Tool { float f(float v) {\n threadgroup float t[4]; // !\n t[0] = v; return t[0]; } };\n" + ADD, "must be declared in a kernel"),
    refused("texture_parameter", HEAD + "kernel void f(device float* out,\n texture2d<float> t [[texture(0)]]) { out[0] = 1; } // !", "textures"),
]  # fmt: skip

DOES_NOT_RUN: list[Wrong] = [
    # out of bounds
    body("oob_read", "float v = 0;\nv = x[i + 1]; // !\nout[i] = v;", "out of bounds: read at index 64 of buffer x, which has 64 elements"),
    body("oob_write", "float v = x[i];\nout[i] = v; // !", "out of bounds: write at index 32 of buffer out, which has 32 elements", count=32),
    body("oob_negative", "int k = int(i) - 1;\nout[i] = x[k]; // !", "out of bounds: read at index -1 of buffer x"),
    body("oob_far", "out[i] = x[i * 100000]; // !", "out of bounds: read at index 100000 of buffer x"),
    body("oob_vector", "device const float4* v = (device const float4*)x;\nout[i] = v[i].w; // !", "out of bounds: read at index 6"),
    body("oob_helper", "out[i] = far(x, i);", "out of bounds: read at index 64", before="float far(device const float* p, uint k) {\n return p[k + 63]; // !\n}\n"),
    body("oob_threadgroup", "threadgroup float t[32];\nt[lid] = x[i]; // !\n" + BARRIER + "\nout[i] = t[0];", "out of bounds: index 32"),
    body("oob_threadgroup_pointer", "threadgroup float t[32];\nthreadgroup float* p = t;\np[lid] = x[i]; // !\n" + BARRIER + "\nout[i] = t[0];", "out of bounds: write at index 32 of threadgroup memory t, which has 32 elements"),
    body("oob_threadgroup_row", "threadgroup float t[8][8];\nt[lid / 8][lid % 9] = x[i]; // !\n" + BARRIER + "\nout[i] = t[0][0];", "out of bounds: index 8"),
    body("oob_thread_array", "float a[4] = {1, 2, 3, 4};\nout[i] = a[i]; // !", "out of bounds: index 4"),
    body("oob_table", "out[i] = few[i]; // !", "out of bounds: index 3", before="constant float few[3] = {1, 2, 3};\n"),
    body("oob_atomic", "device atomic_float* p = (device atomic_float*)out;\natomic_fetch_add_explicit(&p[i], 1.0f, memory_order_relaxed); // !", "out of bounds: write at index 60", count=60),
    body("oob_matrix", "simdgroup_float8x8 m;\nsimdgroup_load(m, x + 8, 8); // !\nsimdgroup_store(m, out, 8);", "out of bounds: read at index 6", launch={"threads": 32, "group_size": 32}),
    body("oob_loop", "float s = 0;\nfor (int k = 0; k <= 64; ++k)\n s += x[k]; // !\nout[i] = s;", "out of bounds: read at index 64"),
    body("null_pointer", "device float* p = nullptr;\nif (x[i] > 0) p[i] = 1; // !\nout[i] = 0;", "outside of the kernel"),
    body("misaligned", "device const float4* v = (device const float4*)(x + 1);\nout[i] = i < 4 ? v[i].x : 0; // !", "misaligned"),
    body("division_by_zero", "int d = int(x[i]) - 1;\nout[i] = int(i) / d; // !", "integer division by zero"),
    body("division_overflow", "int d = -int(x[i]), n = INT_MIN;\nout[i] = (n + int(x[i] - 1)) / d; // !", "overflow of a division"),
    body("remainder_overflow", "long d = -long(x[i]), n = LONG_MIN;\nout[i] = (n + long(x[i] - 1)) % d; // !", "overflow of a division"),
    body("overflow_of_vectors", "int2 d = -int2(int(x[i])), n = INT_MIN;\nout[i] = (n / d).x; // !", "overflow of a division"),
    body("division_of_vectors", "int4 d = int4(int(x[i]) - 1);\nout[i] = (int4(i) / d).x; // !", "integer division by zero"),
    body("oob_component", "float4 v = x[i];\nout[i] = v[i]; // !", "out of bounds: index 4"),
    Wrong("large_array", f"float touch(thread float* p, float v) {{ for (int k = 0; k < 99999; k += 1000) p[k] = v; return p[int(v)]; }}\nkernel void large_array({PARAMETERS}) {{ // !\n float a[100000];\n out[i] = touch(a, x[i]) + a[5];\n}}\n", "no arrays of that size"),
    body("no_result", "out[i] = nothing(x[i]);", "ended without return", before="float nothing(float v) { if (v > 100) return 1; } // !\n"),
    body("recursion", "out[i] = deep(int(i) + 10000000);", "Metal allows no recursion", before="int deep(int n);\nint other(int n) { return deep(n - 1) + n; } // !\nint deep(int n) { return n <= 0 ? 0 : other(n) * 2 + deep(n / 3); } // !\n"),
    # barriers
    body("divergent_if", "threadgroup float t[64]; t[lid] = x[i];\nif (lid < 32) {\n " + BARRIER + " // !\n}\nout[i] = t[lid];", "divergent barrier: threadgroup_barrier"),
    body("divergent_return", "threadgroup float t[64];\nif (i >= 60) return;\nt[lid] = x[i];\n" + BARRIER + " // !\nout[i] = t[lid];", "divergent barrier: threadgroup_barrier is not reached by all threads: thread 60 has returned"),
    body("divergent_loop", "for (uint k = 0; k < lid; ++k)\n " + BARRIER + " // !\nout[i] = x[i];", "divergent barrier"),
    body("divergent_branches", "if (lid & 1)\n " + BARRIER + " // !\nelse\n " + BARRIER + " // !\nout[i] = x[i];", "divergent barrier"),
    body("divergent_in_one_line", "if (lid & 1) " + BARRIER + " else " + BARRIER + " // !\nout[i] = x[i];", "divergent barrier"),
    body("divergent_simd", "if (lane < 8)\n simdgroup_barrier(mem_flags::mem_none); // !\nout[i] = x[i];", "divergent barrier: simdgroup_barrier"),
    body("divergent_in_helper", "if (lid == 0) meet();\nout[i] = x[i];", "divergent barrier", before="void meet() {\n " + BARRIER + " // !\n}\n"),
    body("partial_matrix", "simdgroup_float8x8 m(1);\nif (lane < 16)\n simdgroup_multiply(m, m, m); // !\nout[i] = m.thread_elements()[0];", "all 32 threads"),
    # missing barriers
    body("race_reverse", "threadgroup float t[64];\nt[lid] = x[i] + lid; // !\nout[i] = t[63 - lid]; // !", "race (missing barrier?)"),
    body("race_neighbour", "threadgroup float t[64];\nt[lid] = x[i] + lid; // !\nout[i] = t[(lid + 1) % 64]; // !", "race"),
    body("race_tree", "threadgroup float t[64]; t[lid] = x[i]; " + BARRIER + "\nfor (uint s = 32; s > 0; s /= 2)\n if (lid < s)\n  t[lid] += t[lid + s]; // !\nout[i] = t[0]; // !", "race"),
    body("race_second_pass", "threadgroup float t[64]; float s = 0;\nfor (int k = 0; k < 2; ++k) {\n t[lid] = x[i] + k + lid; // !\n " + BARRIER + "\n s += t[63 - lid]; // !\n}\nout[i] = s;", "race"),
    body("race_scalar", "threadgroup float total;\nif (lid == 0) total = x[i]; // !\nout[i] = total; // !", "race"),
    body("race_sum", "threadgroup float total; if (lid == 0) total = 0; " + BARRIER + "\ntotal += x[i]; // !\n" + BARRIER + "\nout[i] = total;", "race"),
    body("race_two_simdgroups", "threadgroup float t[64];\nt[lid] = x[i] + lid; // !\nsimdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = t[63 - lid]; // !", "race"),
    body("race_no_fence", "threadgroup float t[64];\nt[lid] = x[i] + lid; // !\nthreadgroup_barrier(mem_flags::mem_none);\nout[i] = t[63 - lid]; // !", "race"),
    body("race_wrong_fence", "out[i] = x[i] + lid; // !\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nfloat v = out[63 - i]; // !\nthreadgroup_barrier(mem_flags::mem_device);\nout[i] = v;", "race"),
    body("race_device", "out[0] += x[i]; // !", "race"),
    body("race_same_place", "out[i / 2] = x[i] + i; // !", "race"),
    body("race_between_groups", "out[lid] = x[i] + i; // !", "of another threadgroup", launch={"group_size": 32}),
    body("race_read_other_group", "out[i] = x[i] + i; // !\nthreadgroup_barrier(mem_flags::mem_device);\nout[63 - i] = out[i] + 1; // !", "race", launch={"group_size": 32}),
    body("race_after_reduction", "threadgroup float t[2];\nfloat s = simd_sum(x[i] + i);\nif (lane == 0) t[lid / 32] = s; // !\nout[i] = t[0] + t[1]; // !", "race"),
    body("race_structure", "threadgroup Both t[64];\nt[lid].b = x[i] + lid; // !\nout[i] = t[63 - lid].b; // !", "race", before="struct Both { float a; float b; };\n"),
    body("race_vector", "threadgroup float4 t[64];\nt[lid] = float4(x[i], lid, 2, 3); // !\nout[i] = t[(lid + 7) % 64].y; // !", "race"),
    body("threadgroup_limit", "threadgroup float t[8193]; // !\nt[lid] = 1; out[i] = t[lid];", "threadgroup memory: t makes 32772 bytes, the limit is 32768"),
]  # fmt: skip


def without_one_barrier() -> list[tuple[str, Case]]:
    """Every right kernel with barriers, once for each barrier, without it; the name says which one."""
    found = []
    for case in groups.BARRIERS:
        for number, barrier in enumerate(re.finditer(r"(?:threadgroup|simdgroup)_barrier\([^;]*\);", case.source)):
            name = f"{case.name}_without_{number}"
            source = f"{case.source[: barrier.start()]};{case.source[barrier.end() :]}"
            found.append((source.replace(f"void {case.name}(", f"void {name}("), replace(case, name=name)))
    return found


# Each thread reads what it wrote itself, and all write the same.
NEEDS_NO_BARRIER = {"tg_same_value_without_0"}
MUTANTS = [(source, case) for source, case in without_one_barrier() if case.name not in NEEDS_NO_BARRIER]
