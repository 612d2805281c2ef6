"""Restricts the file access of this process and all its future children by Landlock, permanently.

Landlock does not restrict reading names and sizes (`stat`), changing modes and owners (`chmod`), or connecting to
sockets by path. The seccomp filter of the layer `landlock` refuses these as far as it can.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.sandbox import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 9, 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1, 2

_SINCE = {2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""For some ABI versions: the file-system rights below this bit are known from this version on."""
_NET_RIGHTS = 0b11
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

READ = _EXECUTE | _READ_FILE | _READ_DIR
"""Landlock rights on paths that a worker may read."""
WRITE = (
    READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG
    | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER | _TRUNCATE
)  # fmt: skip
"""Landlock rights on paths that a worker may write."""
DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
"""Landlock rights on device nodes that a worker may open."""

SIGNALS_SINCE = 6
"""First ABI version that also restricts signals and abstract sockets."""
LEAST = 2
"""Least ABI version that kforge can use. Earlier ones forbid renaming a file into another folder, which every build
does."""


def abi() -> int:
    """Return the ABI version of the kernel's Landlock; 0 if it has none."""
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict(
    *,
    readable: Iterable[str | Path],
    writable: Iterable[str | Path],
    devices: Iterable[str | Path],
    listable: Iterable[str | Path] = (),
) -> None:
    """Allow only these paths from now on, in this process and all its future children. Needs no_new_privs. Raises
    OSError.

    Of folders that are `listable`, the names of everything inside can be read, and no file.
    """
    version = abi()
    known = next((limit - 1 for since, limit in sorted(_SINCE.items(), reverse=True) if version >= since), 0x1FFF)
    network = _NET_RIGHTS if version >= 4 else 0
    scope = _SCOPE_ABSTRACT_SOCKET | _SCOPE_SIGNAL if version >= SIGNALS_SINCE else 0
    attributes = struct.pack("=QQQ", known, network, scope)
    size = 24 if scope else 16 if network else 8
    ruleset = syscalls.call("landlock_create_ruleset", attributes, size, 0)
    for paths, rights in ((readable, READ), (writable, WRITE), (devices, DEVICE), (listable, _READ_DIR)):
        for path in paths:
            _allow(ruleset, Path(path), rights & known)
    syscalls.call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Add a rule for one path."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not path.is_dir():
        rights &= _OF_A_FILE
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place), 12)
    syscalls.call("landlock_add_rule", ruleset, 1, rule, 0)
    os.close(place)
