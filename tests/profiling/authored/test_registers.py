"""The width of registers, from instructions as objdump prints them."""

import pytest

from kforge.profiling.authored.registers import OTHER, SCALAR, by_address, kind


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("vfmadd231ps (%rax),%zmm1,%zmm2", "64-byte vectors"),
        ("vmovups %ymm0,0x20(%rdi)", "32-byte vectors"),
        ("mulps  %xmm1,%xmm0", "16-byte vectors"),
        ("vextractf128 $0x1,%ymm0,%xmm1", "32-byte vectors"),
        ("vmulss %xmm1,%xmm0,%xmm0", SCALAR),
        ("cvtsi2ss %rax,%xmm0", SCALAR),
        ("add    $0x8,%rax", OTHER),
        ("fmla\tv2.4s, v1.4s, v0.4s", "16-byte vectors"),
        ("ldr\tq0, [x0, x1]", "16-byte vectors"),
        ("fadd\tv0.2s, v0.2s, v1.2s", "8-byte vectors"),
        ("fmla\tz0.s, p0/m, z1.s, z2.s", "scalable vectors"),
        ("fadd\ts0, s0, s1", SCALAR),
        ("b.ne\t8d4 <f+0x10>  // b.any", OTHER),
        ("add\tx0, x0, #0x10", OTHER),
    ],
)
def test_kind(instruction: str, expected: str) -> None:
    assert kind(instruction) == expected


def test_instructions_are_found_by_address() -> None:
    text = "k.so:  file format\n\n0000000000000730 <f>:\n 730:\tadd\tx0, x0, #0x10\n 734:\tfadd\ts0, s0, s1\n"
    assert by_address(text) == {0x730: OTHER, 0x734: SCALAR}
