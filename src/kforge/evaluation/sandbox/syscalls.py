"""System calls that Python's standard library lacks, by ctypes. Every function raises OSError if the call fails.

The numbers are those of the two architectures that kforge supports on Linux. From 424 on, all architectures share them.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURES = ("x86_64", "aarch64")
"""Supported machines, in the order of the numbers in `_NUMBERS`."""

_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bind": (49, 200), "bpf": (321, 280),
    "capset": (126, 91), "chmod": (90, None), "chown": (92, None), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "clone": (56, 220), "connect": (42, 203), "creat": (85, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262), "fchmod": (91, 52), "fchmodat": (268, 53), "fchown": (93, 55), "fchownat": (260, 54),
    "fcntl": (72, 25), "finit_module": (313, 273), "fremovexattr": (199, 16), "fsetxattr": (190, 7),
    "init_module": (175, 105),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "lchown": (94, None), "listen": (50, 201),
    "lookup_dcookie": (212, 18), "lremovexattr": (198, 15), "lsetxattr": (189, 6), "modify_ldt": (154, None),
    "mknod": (133, None), "mknodat": (259, 33),
    "mount": (165, 40), "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42), "open": (2, None), "openat": (257, 56), "openat2": (437, 437),
    "open_by_handle_at": (304, 265), "perf_event_open": (298, 241),
    "personality": (135, 92), "pivot_root": (155, 41), "prctl": (157, 167), "prlimit64": (302, 261),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "removexattr": (197, 14), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122),
    "semget": (64, 190), "setdomainname": (171, 162), "sethostname": (170, 161),
    "setns": (308, 268), "settimeofday": (164, 170), "setxattr": (188, 5), "shmget": (29, 194), "socket": (41, 198),
    "socketpair": (53, 199), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "tgkill": (234, 131),
    "timer_create": (222, 107), "timerfd_create": (283, 85),
    "tkill": (200, 130), "truncate": (76, 45), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vfork": (58, None), "vhangup": (153, 58),
    "clone3": (435, 435), "fchmodat2": (452, 452), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "landlock_add_rule": (445, 445), "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "quotactl_fd": (443, 443), "removexattrat": (466, 466), "setxattrat": (463, 463),
}  # fmt: skip
"""Numbers of system calls on x86_64 and on aarch64; None where an architecture lacks the call."""

F_SETSIG = 10
CLONE_VFORK, CLONE_PARENT = 0x4000, 0x8000
NEW_NAMESPACE = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000,
    "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "time": 0x00000080,
}  # fmt: skip
"""The CLONE_NEW… flag of each kind of namespace."""

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def number(name: str, architecture: str = platform.machine()) -> int | None:
    """Return the number of a system call; None if this architecture lacks it. Raises ValueError for an unknown
    architecture."""
    return _NUMBERS[name][ARCHITECTURES.index(architecture)]


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> int:
    """Make a system call and return its result. Integers are passed as machine words, everything else as a pointer.
    Raises OSError if the call fails or is not known on this machine."""
    known = number(name)
    if known is None:
        raise OSError(38, os.strerror(38), name)
    words = [_word(argument) for argument in arguments]
    result = int(_libc.syscall(ctypes.c_long(known), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def _word(argument: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> object:
    match argument:
        case int():
            return ctypes.c_long(argument)
        case None:
            return ctypes.c_void_p(None)
        case bytes():
            return ctypes.c_char_p(argument)
    return ctypes.byref(argument)


def prctl(option: int, *values: int) -> None:
    call("prctl", option, *values, *(0,) * (4 - len(values)))


def unshare(*namespaces: str) -> None:
    """Move this process into new namespaces of these kinds."""
    call("unshare", _flags(namespaces))


def join(process: int, *namespaces: str) -> None:
    """Move this process into namespaces of the process behind a pidfd. For `pid`, its future children are moved
    instead."""
    call("setns", process, _flags(namespaces))


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode())


def bind(source: str | Path, target: str | Path, *, read_only: bool, devices: bool = False) -> None:
    """Show a file or folder, with all mounts below it, at another path (a recursive bind mount)."""
    mount(source, target, flags=MS_BIND | MS_REC)
    attributes = _MOUNT_ATTR_NOSUID
    attributes |= 0 if devices else _MOUNT_ATTR_NODEV
    attributes |= _MOUNT_ATTR_RDONLY if read_only else 0
    _set_attributes(target, attributes, _AT_RECURSIVE)


def make_read_only(target: str | Path) -> None:
    """Make one mount read-only, but not the mounts below it."""
    _set_attributes(target, _MOUNT_ATTR_RDONLY, 0)


def pivot_into(root: str | Path) -> None:
    """Make a mounted folder the root folder, and detach the old root."""
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def _set_attributes(target: str | Path, attributes: int, flags: int) -> None:
    wanted = _MountAttributes(attributes, 0, 0, 0)
    call("mount_setattr", _AT_FDCWD, os.fsencode(target), flags, wanted, ctypes.sizeof(wanted))


def _flags(namespaces: tuple[str, ...]) -> int:
    return sum(NEW_NAMESPACE[name] for name in namespaces)
