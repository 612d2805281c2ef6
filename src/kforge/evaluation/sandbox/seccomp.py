"""Restricts the system calls of foreign code by a seccomp filter in BPF.

The filter refuses calls that kernel exploits use and that no program needs to build or run kernels. A call for another
architecture (32-bit, x32) kills the process: its numbers have other meanings, and no honest program makes one.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass

from kforge.evaluation.sandbox import syscalls

FORBIDDEN = (
    # reading and controlling other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd",
    # changing the view of the file system, or bypassing it
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at", "quotactl", "quotactl_fd",
    "fanotify_init", "lookup_dcookie", "nfsservctl",
    # other namespaces
    "unshare", "setns",
    # parts of the kernel that are large, new or obsolete, and often have exploits
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "keyctl", "add_key", "request_key", "personality", "modify_ldt", "iopl", "ioperm", "vhangup",
    # timers: they expire in the kernel while the program is stopped, and disturb the cores of the timed side
    "timerfd_create", "timer_create",
    # the machine itself
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff",
    "acct", "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
)  # fmt: skip
"""System calls that are refused in every layer."""

FORBIDDEN_WITHOUT_NAMESPACES = (
    # the host's network and its sockets by path; `socketpair` still joins a program's own processes
    "socket", "connect", "bind", "listen",
    # memory and queues that all of the user's processes share
    "shmget", "msgget", "semget", "mq_open",
    # calls that Landlock does not restrict
    "truncate", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
)  # fmt: skip
"""System calls that are also refused in the layer `landlock`, because nothing else restricts them there."""

_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
"""System calls that send signals."""

_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""System calls that set the mode of a file, and the number of the argument that has the mode. `mkdir` is missing
because the kernel ignores the refused bits there."""
_OPENS = {"open": 1, "openat": 2}
"""System calls that set a mode only if they create a file, and the number of the argument with the flags. The mode is
the next argument."""
_LENDING = 0o6000
"""Set-user-ID and set-group-ID bits: such a file runs as its owner, also outside the sandbox, where builds are kept."""
_CREATING = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE. Without one of these flags the kernel ignores the mode, which may then have any value."""

_AF_UNIX, _SOCK_DGRAM, _SOCK_SEQPACKET, _TYPE_BITS = 1, 2, 5, 0xF
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_LOAD, _EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


@dataclass(frozen=True)
class SyscallRule:
    """A rule that refuses a system call, or only calls with a certain argument.

    If `argument` is given, the call is refused only if the bits of that argument under `mask` equal `value` (or, with
    `when_equal` false, do not equal it). `code` is the error number that the caller gets.
    """

    name: str
    code: int = errno.EPERM
    argument: int | None = None
    mask: int = 0xFFFFFFFF
    value: int = 0
    when_equal: bool = True
    only: tuple[int, int] | None = None
    """Number of another argument, and bits: the rule applies only to calls that have one of these bits set there."""


def rules(*, namespaced: bool, signals_confined: bool = True, pid: int = 0, drivers: bool = False) -> list[SyscallRule]:
    """Return the rules for a worker.

    `namespaced`: the worker has its own namespaces. `signals_confined`: Landlock restricts signals; if not, the process
    may only send signals to `pid`, which is itself. `drivers`: allow creating a local socket, which the drivers of
    accelerators do when they start; connecting it stays forbidden.
    """
    new_namespaces = sum(syscalls.NEW_NAMESPACE.values())
    refused = [SyscallRule(name) for name in FORBIDDEN]
    # clone3 takes its flags by pointer, which a filter cannot follow; without clone3, libc falls back to clone
    refused.append(SyscallRule("clone3", errno.ENOSYS))
    # the time namespace's flag lies in the bits that clone uses for the exit signal, and only unshare takes it
    mask = new_namespaces & ~syscalls.NEW_NAMESPACE["time"]
    refused.append(SyscallRule("clone", argument=0, mask=mask, when_equal=False))
    # a sibling of the worker would be outside the tree of processes that is stopped
    refused.append(SyscallRule("clone", argument=0, mask=syscalls.CLONE_PARENT, value=syscalls.CLONE_PARENT))
    # so would be the worker's orphans, if it could refuse to adopt them
    refused.append(SyscallRule("prctl", argument=0, value=syscalls.PR_SET_CHILD_SUBREAPER))
    # with F_SETSIG the kernel could send SIGCONT to a stopped program when a file changes
    refused.append(SyscallRule("fcntl", argument=1, value=syscalls.F_SETSIG))
    # the call succeeds without effect: a program must not get more processors than the evaluation has, but an honest
    # program that pins its threads must not fail
    refused.append(SyscallRule("sched_setaffinity", code=0))
    refused += [SyscallRule(name, argument=at, mask=_LENDING, when_equal=False) for name, at in _MODES.items()]
    for name, at in _OPENS.items():
        refused.append(SyscallRule(name, argument=at + 1, mask=_LENDING, when_equal=False, only=(at, _CREATING)))
    # openat2 takes its mode by pointer, too; programs can use openat
    refused.append(SyscallRule("openat2", errno.ENOSYS))
    if namespaced:
        # the network namespace does not confine all socket families, and in it no address answers anyway
        refused.append(SyscallRule("socket", errno.EAFNOSUPPORT, argument=0, value=_AF_UNIX, when_equal=False))
        return refused
    refused += [SyscallRule(name) for name in FORBIDDEN_WITHOUT_NAMESPACES if not (drivers and name == "socket")]
    if drivers:
        # a socket without a connection reaches no other process, and connecting stays forbidden
        refused.append(SyscallRule("socket", argument=0, value=_AF_UNIX, when_equal=False))
        refused.append(SyscallRule("socket", argument=1, mask=_TYPE_BITS, value=_SOCK_SEQPACKET, when_equal=False))
    # a datagram socket of a pair could still send to another socket
    refused.append(SyscallRule("socketpair", argument=1, mask=_TYPE_BITS, value=_SOCK_DGRAM))
    refused.append(SyscallRule("prlimit64", argument=0, value=0, when_equal=False))
    if not signals_confined:
        refused += [SyscallRule(name) for name in _SIGNALS if name not in ("kill", "tgkill")]
        refused += [SyscallRule(name, argument=0, value=pid, when_equal=False) for name in ("kill", "tgkill")]
    return refused


def program(refused: list[SyscallRule], architecture: str = platform.machine()) -> bytes:
    """Return the filter as BPF instructions for the kernel. Raises ValueError for an unsupported architecture."""
    if architecture not in _AUDIT_ARCHITECTURE:
        raise ValueError(f"no seccomp filter is written for {architecture}")
    code = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_EQUAL, _AUDIT_ARCHITECTURE[architecture], yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
    ]
    if architecture == "x86_64":
        code += [_step(_ANY_BIT, _X32, no=1), _step(_RETURN, _KILL)]
    for rule in refused:
        number = syscalls.number(rule.name, architecture)
        if number is not None:
            code += _refusal(rule, number)
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def install(refused: list[SyscallRule]) -> None:
    """Install the filter permanently, for this process and all its children. Needs no_new_privs. Raises OSError or
    ValueError."""
    steps = program(refused)
    buffer = ctypes.create_string_buffer(steps, len(steps))
    header = struct.pack("@HP", len(steps) // 8, ctypes.addressof(buffer))
    place = ctypes.create_string_buffer(header, len(header))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, 2, ctypes.addressof(place))


def _refusal(rule: SyscallRule, number: int) -> list[bytes]:
    """Return the BPF instructions of one rule."""
    refuse = _step(_RETURN, _ERRNO | rule.code)
    if rule.argument is None:
        return [_step(_EQUAL, number, no=1), refuse]
    tests = [
        _step(_LOAD, _ARGUMENTS_AT + 8 * rule.argument),
        _step(_AND, rule.mask),
        _step(_EQUAL, rule.value, **({"no": 1} if rule.when_equal else {"yes": 1})),
        refuse,
    ]
    if rule.only is not None:
        argument, bits = rule.only
        tests = [_step(_LOAD, _ARGUMENTS_AT + 8 * argument), _step(_ANY_BIT, bits, no=len(tests)), *tests]
    return [
        _step(_EQUAL, number, no=len(tests) + 1),
        *tests,
        _step(_LOAD, _NUMBER_AT),  # the next rule tests the number again
    ]


def _step(operation: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one BPF instruction. `yes` and `no` are how many instructions to skip after a test."""
    return struct.pack("=HBBI", operation, yes, no, operand)
