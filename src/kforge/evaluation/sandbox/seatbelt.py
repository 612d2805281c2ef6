"""Writes a profile for `sandbox-exec` of macOS. Its text is tested; the sandbox itself was never tried on a Mac.

Covered, as far as Apple documents it: writing outside two folders, reading outside the border (`border.py`), the
network, starting anything but tools inside the border, devices other than the classes that a platform names. Not
covered: processes that leave the process group, and rules of the profile language that macOS no longer obeys (Apple
calls it deprecated).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.sandbox.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.sandbox.border import Border, WorkerFolders

COMMAND = Path("/usr/bin/sandbox-exec")
NAME = "seatbelt"
DESCRIPTION = (
    "seatbelt: files, network and devices by sandbox-exec; not covered: processes that leave their group, the "
    "accelerator's driver, memory and processor time, side channels; this layer was never tried by its authors"
)
_SYSTEM = ("/System", "/Library", "/usr", "/bin", "/sbin", "/opt", "/private/var/db/dyld", "/Applications/Xcode.app")


def choose(ladder: Sequence[str]) -> tuple[str, str]:
    """The layer's name and description for a macOS machine; without sandbox-exec an empty name and the reason."""
    if ladder and ladder[0] != Layer.name and COMMAND.exists():
        return NAME, DESCRIPTION
    if Layer.name in ladder:
        return Layer.name, f"{Layer.name}: {Layer.covers}; not covered: {Layer.leaves}"
    return "", "no sandbox works here (sandbox-exec is not there); let programs run without one by --unsafe"


def wrapper(border: Border, place: WorkerFolders) -> tuple[str, ...]:
    """Return the command that is put before a worker's own."""
    return str(COMMAND), "-p", profile(border, place)


def profile(border: Border, place: WorkerFolders) -> str:
    """Return the profile text: everything that is not named is denied."""
    readable = sorted({*_SYSTEM, *border.readable})
    writable = (str(place.work), str(place.builds))
    lines = [
        "(version 1)",
        "(deny default)",
        "(deny network*)",
        "(allow process-fork)",
        "(allow sysctl-read)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow file-read-metadata)",
        f"(allow process-exec* file-read* {_paths(readable)})",
        f"(allow process-exec* file-read* file-write* {_paths(writable)})",
        '(allow file-read* file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))',
        '(allow file-read* (literal "/") (literal "/dev/random") (literal "/dev/urandom"))',
        "(allow ipc-posix-shm-read* ipc-posix-shm-write-data ipc-posix-shm-write-create)",
    ]
    # an adapter names classes of devices, and services by their dotted names
    if classes := [f"(iokit-user-client-class {_quoted(name)})" for name in border.devices if "." not in name]:
        lines.append(f"(allow iokit-open {' '.join(classes)})")
    if services := [f"(global-name {_quoted(name)})" for name in border.devices if "." in name]:
        lines.append(f"(allow mach-lookup {' '.join(services)})")
    return "\n".join(lines) + "\n"


def _paths(paths: Sequence[str]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in paths)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
