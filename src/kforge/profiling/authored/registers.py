"""Classifies the instructions of a disassembly by the width of the registers that they use."""

from __future__ import annotations

import re

_INSTRUCTION = re.compile(r"^ *(?P<address>[0-9a-f]+):\t(?P<text>[^\n]*)$", re.MULTILINE)
_X86_WIDE = re.compile(r"%[xyz]mm\d")
_X86_SCALAR = re.compile(r"^v?(?:\w+s[sd]|u?comis[sd]|movd|movq|cvt\w*)\b")
_X86_BYTES = {"x": 16, "y": 32, "z": 64}
_ARM_VECTOR = re.compile(r"\bv\d+\.(?P<count>\d+)(?P<kind>[bhsd])\b")
_ARM_QUAD = re.compile(r"\bq\d+\b")
_ARM_SCALABLE = re.compile(r"\bz\d+\b")
_ARM_SCALAR = re.compile(r"\b[hsd]\d+\b")
_ARM_BYTES = {"b": 1, "h": 2, "s": 4, "d": 8}

SCALAR = "scalar floating point"
OTHER = "integers, addresses and branches"


def by_address(disassembly: str) -> dict[int, str]:
    """Return the kind of registers that each instruction of `objdump -d` uses, by its address."""
    return {int(one["address"], 16): kind(one["text"]) for one in _INSTRUCTION.finditer(disassembly)}


def kind(instruction: str) -> str:
    """Return the widest kind of registers in an instruction: `16-byte vectors`, SCALAR or OTHER."""
    if wide := _X86_WIDE.findall(instruction):
        if _X86_SCALAR.match(instruction.strip()):
            return SCALAR
        return _vectors(max(_X86_BYTES[register[1]] for register in wide))
    if _ARM_SCALABLE.search(instruction):
        return "scalable vectors"
    if vectors := list(_ARM_VECTOR.finditer(instruction)):
        return _vectors(max(int(one["count"]) * _ARM_BYTES[one["kind"]] for one in vectors))
    if _ARM_QUAD.search(instruction):
        return _vectors(16)
    return SCALAR if _ARM_SCALAR.search(instruction.partition("//")[0]) else OTHER


def _vectors(size: int) -> str:
    return f"{size}-byte vectors"
