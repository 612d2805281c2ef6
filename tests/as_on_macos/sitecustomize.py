"""Makes this interpreter, and all that it starts, look like one on macOS, as far as kforge can tell.

With this folder on PYTHONPATH, what Linux has and macOS lacks is gone: calls of the modules `os`, `signal`, `socket`,
`mmap` and `resource`, /proc and /sys, and clocks of other processes.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import socket
import sys
import sysconfig
import time
import types
from typing import Any

LINUX_ONLY: dict[types.ModuleType, tuple[str, ...]] = {
    os: (
        "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler", "sched_getparam",
        "sched_setparam", "sched_rr_get_interval", "sched_yield", "pidfd_open", "memfd_create", "MFD_CLOEXEC",
        "MFD_ALLOW_SEALING", "O_PATH", "O_TMPFILE", "O_DIRECT", "unshare", "setns", "splice", "copy_file_range",
        "eventfd", "getxattr", "setxattr", "listxattr", "removexattr", "getresuid", "getresgid", "setresuid",
        "setresgid", "posix_fadvise", "posix_fallocate", "getrandom", "fdatasync",
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPOLL", "SIGPWR"),
    socket: ("SO_PEERCRED", "SO_PASSCRED", "SCM_CREDENTIALS", "MSG_CMSG_CLOEXEC", "AF_NETLINK"),
    mmap: ("MADV_REMOVE", "MADV_DONTFORK", "MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MAP_POPULATE", "MAP_STACK"),
    resource: ("prlimit", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME"),
}  # fmt: skip
MISSING = ("/proc", "/sys/")


def _hidden(path: Any) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(MISSING)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and _hidden(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", os.fsdecode(arguments[0]))


def _without_hidden(stat: Any) -> Any:
    def of_path(path: Any, *arguments: Any, **more: Any) -> Any:
        if _hidden(path):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return stat(path, *arguments, **more)

    return of_path


def _own_clocks(read: Any) -> Any:
    def of_clock(clock: int) -> Any:
        if clock < 0:  # a process's own number, as Linux encodes it
            raise OSError(22, "Invalid argument")
        return read(clock)

    return of_clock


sysconfig.get_config_vars()  # read by the platform's name, from a file that only the real one has
for _module, _names in LINUX_ONLY.items():
    for _name in _names:
        if hasattr(_module, _name):
            delattr(_module, _name)
sys.addaudithook(_refuse)
os.stat = _without_hidden(os.stat)
time.clock_gettime_ns = _own_clocks(time.clock_gettime_ns)
sys.modules["_scproxy"] = types.ModuleType("_scproxy")  # macOS's proxy settings, which urllib reads when it is imported
sys.modules["_scproxy"]._get_proxies = sys.modules["_scproxy"]._get_proxy_settings = dict  # type: ignore[attr-defined]
sys.platform = "darwin"
