"""Writes a profile for `sandbox-exec` of macOS. Tests check the text; the sandbox itself was never tried on a Mac.

Protected, as far as Apple documents it: writing outside two folders, reading outside the border (`border.py`), the
network, starting programs outside the border, devices other than those that a platform names. Not protected: processes
that leave the process group, and rules that newer versions of macOS ignore (Apple calls `sandbox-exec` deprecated).
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
    """Return name and description of the layer for a macOS machine. If it has no such layer, the name is
    empty and the description is the reason."""
    if ladder and ladder[0] != Layer.name and COMMAND.exists():
        return NAME, DESCRIPTION
    if Layer.name in ladder:
        return Layer.name, f"{Layer.name}: {Layer.covers}; not covered: {Layer.leaves}"
    return "", "no sandbox works here (sandbox-exec is missing); use --unsafe to run programs without a sandbox"


def wrapper(border: Border, place: WorkerFolders) -> tuple[str, ...]:
    """Return the command that is put before a worker's own command."""
    return str(COMMAND), "-p", profile(border, place)


def profile(border: Border, place: WorkerFolders) -> str:
    """Return the text of the profile. Everything that it does not name is denied."""
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
