"""A small Metal kernel, its launch, and what torch says the result is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 64
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    out: torch.Tensor
    expected: torch.Tensor
    inputs: tuple[Any, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict)
    constants: dict[Any, Any] = field(default_factory=dict)
    rtol: float = 2e-6
    atol: float = 1e-6

    def __str__(self) -> str:
        return self.name

    def check(self, library: Any) -> None:
        kernel = getattr(library, self.name)
        if self.constants:
            kernel = kernel.specialize(self.constants)
        out = self.out.clone()
        kernel(out, *self.inputs, **{"threads": COUNT, "group_size": COUNT, **self.launch})
        torch.testing.assert_close(out, self.expected, rtol=self.rtol, atol=self.atol, equal_nan=True)


def numbers(
    low: float = -3.0, high: float = 3.2, count: int = COUNT, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.linspace(low, high, count).to(dtype)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


METAL = {
    torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat", torch.int32: "int", torch.uint32: "uint",
    torch.int16: "short", torch.int8: "char", torch.uint8: "uchar", torch.int64: "long", torch.bool: "bool",
}  # fmt: skip


def elementwise(
    name: str,
    body: str,
    result: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    out: torch.dtype = torch.float32,
    **more: Any,
) -> Case:
    """`body` computes out[i] from x[i], y[i], z[i]."""
    parameters = "".join(
        f"device const {METAL[one.dtype]}* {letter}, " for letter, one in zip("xyz", inputs, strict=False)
    )
    source = (
        f"kernel void {name}(device {METAL[out]}* out, {parameters}uint i [[thread_position_in_grid]]) {{ {body} }}"
    )
    expected = result(*inputs).to(out)
    return Case(name, source, torch.zeros_like(expected), expected, inputs, **more)


ATTRIBUTES = (
    "uint i [[thread_position_in_grid]], uint lid [[thread_position_in_threadgroup]], "
    "uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]], "
    "uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]"
)


def cooperative(name: str, body: str, expected: torch.Tensor, *inputs: torch.Tensor, **more: Any) -> Case:
    """`body` knows where its thread is: i, lid, group, size, lane, simd."""
    parameters = "".join(
        f"device const {METAL[one.dtype]}* {letter}, " for letter, one in zip("xyz", inputs, strict=False)
    )
    source = f"kernel void {name}(device {METAL[expected.dtype]}* out, {parameters}{ATTRIBUTES}) {{ {body} }}"
    return Case(name, source, torch.zeros_like(expected), expected, inputs, **more)
