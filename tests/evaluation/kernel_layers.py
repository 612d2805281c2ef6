"""Asks the kernel, without kforge, for what the layers of the sandbox are made of.

A layer that does not work may be skipped only where the kernel does not offer it: otherwise kforge is at fault.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import pytest

LANDLOCK_CREATE_RULESET = 444
"""On every architecture."""


def skip_if_missing(layer: str) -> None:
    """Skip where this kernel, or the container around this process, does not offer a layer of the sandbox."""
    if layer == "landlock" and ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) < 2:
        pytest.skip("this kernel has no Landlock")
    if layer == "namespaces":
        if shutil.which("unshare") is None:
            pytest.skip("no unshare on this machine")
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", *user, "--mount", "--pid", "--net", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this kernel has no namespaces for this process")
