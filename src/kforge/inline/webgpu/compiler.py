"""Compiles WGSL with the compiler inside `wgpu` (Naga), and puts its messages into the form that other compilers
use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import CompileError

if TYPE_CHECKING:
    from kforge.inline.webgpu.device import Device

SOURCE = "kernel.wgsl"
"""The name of the source in messages."""
_PLACE = re.compile(r"(?:┌─ \S*?)?:(\d+):(\d+)$")
_PROBLEM = re.compile(r"(?:parsing error|Shader validation error|error): (.*)")
_HEADER = re.compile(r"\s*(Validation Error|Caused by:|In wgpu\w+)\s*$")
_ENABLED = re.compile(r"\benable\s+subgroups\s*;")
"""Matches the directive that the standard requires for subgroup functions. Naga has these functions but rejects the
directive."""


def module(device: Device, text: str) -> Any:
    """Return the compiled module. Raises CompileError if the compiler refuses the text."""
    # the directive is replaced by blanks, so that columns in messages stay correct
    plain = _ENABLED.sub(lambda found: " " * len(found[0]), text)
    try:
        return device.native.create_shader_module(code=plain)
    except device.wgpu.GPUError as error:
        raise compile_error(error) from None


def compile_error(error: Exception) -> CompileError:
    """Return the compiler's message as a CompileError, with the place in the source first."""
    log = str(error).strip()
    lines = [line for line in log.splitlines() if line.strip() and not _HEADER.match(line)]
    problem, place, rest = "", "", []
    for line in lines:
        if not problem and (found := _PROBLEM.search(line)) is not None:
            problem = found[1]
        elif not place and (found := _PLACE.search(line)) is not None:
            place = f":{found[1]}:{found[2]}"
        else:
            rest.append(line.rstrip())
    problem = problem or (rest.pop(0).strip() if rest else "the compiler gives no reason")
    return CompileError("\n".join([f"{SOURCE}{place}: error: {problem}", *rest]), log)
