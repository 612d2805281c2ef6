"""The filter, run by a small interpreter of the kernel's language: it can be read for any architecture here."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.evaluation.sandbox import seccomp, syscalls

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
READ = {"x86_64": 0, "aarch64": 63}


def decide(program: bytes, number: int, architecture: int, *arguments: int) -> int:
    """What the kernel would do with this call."""
    words = [number, architecture, 0, 0]
    for value in (*arguments, *(0,) * (6 - len(arguments))):
        words += [value & 0xFFFFFFFF, value >> 32]
    steps = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    accumulator = position = 0
    while True:
        operation, yes, no, operand = steps[position]
        position += 1
        match operation:
            case 0x20:
                accumulator = words[operand // 4]
            case 0x54:
                accumulator &= operand
            case 0x15:
                position += yes if accumulator == operand else no
            case 0x45:
                position += yes if accumulator & operand else no
            case 0x06:
                return operand
            case _:
                pytest.fail(f"unknown operation {operation:#x}")


@pytest.mark.parametrize("architecture", syscalls.ARCHITECTURES)
@pytest.mark.parametrize("namespaced", [True, False])
def test_what_is_named_is_refused_and_the_rest_is_not(architecture: str, namespaced: bool) -> None:
    program = seccomp.program(seccomp.rules(namespaced=namespaced), architecture)
    assert len(program) // 8 < 4096, "the kernel takes no longer one"
    names = seccomp.FORBIDDEN + (() if namespaced else seccomp.FORBIDDEN_WITHOUT_NAMESPACES)
    for name in names:
        number = syscalls.number(name, architecture)
        if number is not None:
            assert decide(program, number, AUDIT[architecture]) == ERRNO | errno.EPERM, name
    assert decide(program, READ[architecture], AUDIT[architecture]) == ALLOW
    clone3 = syscalls.number("clone3", architecture)
    assert clone3 is not None
    assert decide(program, clone3, AUDIT[architecture]) == ERRNO | errno.ENOSYS


@given(number=st.integers(0, 0x3FFFFFFF), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
@pytest.mark.parametrize("architecture", syscalls.ARCHITECTURES)
def test_only_listed_calls_are_refused(architecture: str, number: int, arguments: list[int]) -> None:
    rules = seccomp.rules(namespaced=False, signals_confined=False, pid=7)
    listed = {syscalls.number(rule.name, architecture) for rule in rules}
    decision = decide(seccomp.program(rules, architecture), number, AUDIT[architecture], *arguments)
    assert decision == ALLOW or number in listed


@given(number=st.integers(0, 2**32 - 1), architecture=st.integers(0, 2**32 - 1))
def test_other_architectures_end_the_process(number: int, architecture: int) -> None:
    program = seccomp.program(seccomp.rules(namespaced=True), "x86_64")
    if architecture != AUDIT["x86_64"] or number & 0x40000000:
        assert decide(program, number, architecture) == KILL


def test_arguments_decide_where_they_must() -> None:
    inside, outside = (seccomp.program(seccomp.rules(namespaced=n), "x86_64") for n in (True, False))
    refused, arch = ERRNO | errno.EPERM, AUDIT["x86_64"]
    for flag in syscalls.NEW_NAMESPACE.values():
        clone = decide(inside, 56, arch, flag | 17)
        assert clone == (ALLOW if flag == syscalls.NEW_NAMESPACE["time"] else refused)
    assert decide(inside, 56, arch, 17) == ALLOW  # fork
    assert decide(inside, 56, arch, 0x3D0F00) == ALLOW  # a thread
    for program in (inside, outside):
        assert decide(program, 157, arch, 36, 0) == refused  # orphans leave the worker's tree
        assert decide(program, 157, arch, 36 | 1 << 32, 0) == refused  # the kernel looks at the lower half only
        assert decide(program, 157, arch, 15, 0) == ALLOW  # a thread's name
        assert decide(program, 72, arch, 3, 10, 18) == refused  # SIGCONT by the kernel
        assert decide(program, 72, arch, 3, 4, 2048) == ALLOW  # a descriptor that does not block
    assert decide(inside, 41, arch, 1, 1) == ALLOW  # a socket of this machine
    assert decide(inside, 41, arch, 2, 1) == ERRNO | errno.EAFNOSUPPORT
    assert decide(outside, 53, arch, 1, 1 | 0o2000000) == ALLOW  # a stream pair, closed on exec
    assert decide(outside, 53, arch, 1, 2 | 0o2000000) == refused  # datagrams
    assert decide(outside, 302, arch, 0) == ALLOW
    assert decide(outside, 302, arch, 1) == refused
    own = seccomp.program(seccomp.rules(namespaced=False, signals_confined=False, pid=7), "x86_64")
    assert [decide(own, 62, arch, pid, 9) for pid in (7, 8, 0, 2**32 - 1)] == [ALLOW, refused, refused, refused]


MODES_AT = {
    "x86_64": {"chmod": (90, 1), "fchmod": (91, 1), "fchmodat": (268, 2), "fchmodat2": (452, 2), "creat": (85, 1),
               "mknod": (133, 1), "mknodat": (259, 2)},
    "aarch64": {"fchmod": (52, 1), "fchmodat": (53, 2), "fchmodat2": (452, 2), "mknodat": (33, 2)},
}  # fmt: skip
OPENS_AT = {"x86_64": ((2, 1), (257, 2)), "aarch64": ((56, 2),)}


@pytest.mark.parametrize("architecture", syscalls.ARCHITECTURES)
@pytest.mark.parametrize("bits", [0o4000, 0o2000, 0o6000])
def test_no_file_may_lend_its_owners_rights(architecture: str, bits: int) -> None:
    program, arch = seccomp.program(seccomp.rules(namespaced=True), architecture), AUDIT[architecture]
    refused = ERRNO | errno.EPERM
    for number, at in MODES_AT[architecture].values():
        assert decide(program, number, arch, *(0,) * at, bits | 0o755) == refused
        assert decide(program, number, arch, *(0,) * at, bits | 0o755 | 1 << 40) == refused
        assert decide(program, number, arch, *(0,) * at, 0o755) == ALLOW
        assert decide(program, number, arch, *(0,) * at, 0o1777) == ALLOW
    for number, at in OPENS_AT[architecture]:
        before = (0,) * at
        for creating in (0o100, 0o20200000, 0o20000000):
            assert decide(program, number, arch, *before, creating | 1, bits | 0o755) == refused
            assert decide(program, number, arch, *before, creating | 1, 0o666) == ALLOW
        # nobody reads this register: whatever is left in it is no mode
        assert decide(program, number, arch, *before, 0o2000000, bits) == ALLOW
    assert decide(program, 437, arch) == ERRNO | errno.ENOSYS


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.program([], "riscv64")
