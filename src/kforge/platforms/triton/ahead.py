"""Compiles a program's kernels for GPUs that this machine does not have, in a separate process: `ahead.py kernel.py
TARGET…`.

It calls the program once and intercepts its launches, which shows the types of every kernel's arguments. Then Triton
compiles each kernel for each target. Only the platform's own example is built this way, never foreign code. (torch)
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}

_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
_INT32 = range(-(2**31), 2**31)


def launches(kernel: Path) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Return every launch of one call of the program's module, on the inputs of the reference beside it: the kernel,
    its arguments and its options."""
    caught: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def catch(function: Any, *arguments: Any, grid: Any, warmup: Any, **options: Any) -> None:
        del grid, warmup
        caught.append((function, arguments, options))

    JITFunction.run = catch
    reference = runpy.run_path(str(kernel.with_name("reference.py")))
    model = runpy.run_path(str(kernel))["ModelNew"](*reference["get_init_inputs"]())
    with torch.no_grad():
        model(*reference["get_inputs"]())
    return caught


def build(function: Any, arguments: tuple[Any, ...], options: dict[str, Any], target: GPUTarget) -> Any:
    """Compile the kernel of one launch for a target, and return the result. Raises what Triton raises."""
    named = {name: value for name, value in options.items() if name in function.arg_names}
    bound = function.signature.bind(*arguments, **named)
    bound.apply_defaults()
    fixed = {p.name for p in function.params if p.is_constexpr or bound.arguments[p.name] is None}
    types = {p.name: "constexpr" if p.name in fixed else _type(bound.arguments[p.name]) for p in function.params}
    constants = {name: bound.arguments[name] for name in fixed}
    source = ASTSource(function, types, constants)
    rest = {name: value for name, value in options.items() if name not in named}
    return triton.compile(source, target=target, options=rest)


def _type(value: Any) -> str:
    """Return Triton's name for the type of an argument."""
    if isinstance(value, torch.Tensor):
        return "*" + _TYPES[value.dtype]
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if value in _INT32 else "i64"
    return "fp32"


def main() -> None:
    """Compile all kernels of the program for all targets that are named on the command line."""
    caught = launches(Path(sys.argv[1]))
    if not caught:
        sys.exit("the program launches no kernel")
    for name in sys.argv[2:]:
        for function, arguments, options in caught:
            build(function, arguments, options, TARGETS[name])


if __name__ == "__main__":
    main()
