"""Attacks a sandbox from inside, to find out whether it works on this machine before the first worker runs in it."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.sandbox import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.evaluation.sandbox.border import Border, WorkerFolders


_CONTENT = "outside"
"""Content of the file outside the sandbox that the attacks try to read and write."""


@dataclass(frozen=True)
class Targets:
    """Things outside the sandbox that the attacks try to access, and devices and folders that must work inside."""

    secret: Path
    process: int
    port: int
    abstract_socket: str
    devices: tuple[str, ...]
    needed_devices: tuple[str, ...]
    place: WorkerFolders


@contextmanager
def targets(folder: Path, place: WorkerFolders, border: Border) -> Iterator[Targets]:
    """Make targets for the attacks: a secret file, a TCP server, an abstract socket, and this process itself."""
    name = f"\0kforge-{secrets.token_hex(8)}"
    secret = folder / "secret"
    secret.write_text(_CONTENT)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(name)
        listener.listen()
        # harmless nodes: opening some devices already has an effect
        needed = tuple(filter(_opens, border.device_nodes()))
        devices = tuple(node for node in ("/dev/ptmx", "/dev/kmsg") if node not in needed and _opens(node))
        yield Targets(secret, os.getpid(), server.getsockname()[1], name, devices, needed, place)


def faults(outside: Targets) -> tuple[list[str], list[str]]:
    """Run inside the sandbox. Returns a line for each attack that succeeds, and a line for each necessary action that
    fails."""
    attacks: dict[str, Callable[[], object]] = {
        "a file outside can be read": outside.secret.read_bytes,
        "installed packages can be changed": lambda: _touch_and_remove(Path(__file__).with_name("probe.tmp")),
        "the network can be reached": lambda: socket.create_connection(("127.0.0.1", outside.port), 1).close(),
        "a socket without a path can be reached": lambda: _connect(outside.abstract_socket),
        "another process can be signalled": lambda: os.kill(outside.process, 0),
        "another process's environment can be read": Path(f"/proc/{outside.process}/environ").read_bytes,
        "another process can be traced": lambda: syscalls.call("ptrace", 0x4206, outside.process, 0, 0),
        "a new user namespace can be had": lambda: syscalls.unshare("user"),
        "file systems can be mounted": lambda: syscalls.mount("none", outside.place.work, "tmpfs"),
        **{f"{node} can be opened": partial(_open, node) for node in outside.devices},
    }
    needs: dict[str, Callable[[], object]] = {
        "its folder cannot be written": (outside.place.work / "probe").touch,
        "builds cannot be kept": lambda: _touch_and_remove(outside.place.builds / "probe"),
        "programs cannot be run": lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True),
        "the interpreter cannot be read": lambda: _read(sys.executable),
        "kforge cannot be imported": lambda: _read(_home_of("kforge")),
        "torch cannot be imported": lambda: _read(_home_of("torch")),
        "/dev/null cannot be written": lambda: Path(os.devnull).write_text("x"),
        "/proc/self cannot be read": Path("/proc/self/status").read_text,
        **{f"{node} cannot be opened": partial(_open, node) for node in outside.needed_devices},
    }
    breaches = [said for said, attack in attacks.items() if _succeeds(attack)]
    failures = [said for said, work in needs.items() if not _succeeds(work)]
    # in a private /tmp with folders of the same names these two may succeed without harm, so `damage` checks outside
    _succeeds(lambda: outside.secret.write_bytes(b"written"))
    _succeeds((outside.secret.parent / "made").touch)
    return breaches, failures


def damage(outside: Targets) -> list[str]:
    """Run outside the sandbox after `faults`. Returns one line for each change that the attacks made outside."""
    found = [] if outside.secret.read_text() == _CONTENT else ["a file outside can be written"]
    return found + (["a file can be made outside"] if (outside.secret.parent / "made").exists() else [])


def _succeeds(action: Callable[[], object]) -> bool:
    try:
        action()
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(name)


def _opens(node: str) -> bool:
    return _succeeds(partial(_open, node))


def _open(node: str) -> None:
    os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK))


def _touch_and_remove(path: Path) -> None:
    path.touch()
    path.unlink()


def _read(path: str) -> None:
    with Path(path).open("rb") as file:
        file.read(1)


def _home_of(package: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
