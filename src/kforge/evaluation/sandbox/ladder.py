"""Chooses the sandbox layer: the first one of the ladder that works here, found by trying it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.sandbox import probes
from kforge.evaluation.sandbox.border import Border, WorkerFolders
from kforge.evaluation.sandbox.layers import Landlock, Layer, Namespaces, NamespacesAsNobody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.sandbox.cells import Warden

LADDER = ("namespaces", "landlock")
"""Layers, best first. If none works, programs are refused, or run with `--unsafe`."""
UNSAFE = Layer.name


class NoBorder(Exception):
    """No layer of the ladder works here; the message is one line that says why."""


def choose(ladder: Sequence[str], border: Border, folder: Path, warden: Warden | None = None) -> Layer:
    """Return the best layer that works, and enter it as far as this process is concerned. Raises NoBorder.

    The process must have one thread. `folder` is for the trials, and `warden` for the layer that is chosen.
    """
    why = []
    for name in ladder:
        for layer in _ways(name):
            reason = "" if layer is Layer else _tried(layer, border, folder)
            if not reason:
                return layer(border, warden)
            why.append(f"{name}: {reason}")
    if _in_container():
        why.append("this is a container, which may forbid them")
    raise NoBorder(
        f"no sandbox works here ({'; '.join(why) or 'none was allowed'}); see docs/threat-model.md, "
        "or let programs run without one by --unsafe"
    )


def _ways(name: str) -> tuple[type[Layer], ...]:
    match name:
        case "namespaces":
            return (NamespacesAsNobody, Namespaces) if os.geteuid() == 0 else (Namespaces,)
        case "landlock":
            return (Landlock,)
    assert name == UNSAFE
    return (Layer,)


def _tried(layer: type[Layer], border: Border, folder: Path) -> str:
    """Return why a layer cannot be used here; empty when it can. It is tried in a child, since some steps cannot be
    repeated."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.write(write, _attempt(layer, border, folder).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said if said != "works" else ""


def _attempt(layer: type[Layer], border: Border, folder: Path) -> str:
    work = folder / f"probe-{layer.__name__.lower()}"
    place = WorkerFolders(work / "work", work / "builds")
    read, write = os.pipe()

    def report() -> None:
        os.write(write, json.dumps(probes.faults(outside)).encode())

    try:
        work.mkdir(parents=True)
        with probes.targets(work, place, border) as outside:
            chosen = layer(border)
            pid = chosen.spawn(place, report, keep=(write,))
            os.close(write)
            with os.fdopen(read) as answer:
                said = answer.read()
            os.waitpid(pid, 0)
            chosen.clear(pid)
            found = json.loads(said) if said else [(place.log.read_text().strip().splitlines() or ["it died"])[-1]]
            found += probes.damage(outside)
    except OSError as error:
        return _one_line(str(error))
    return _one_line(", ".join(found)) or "works"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))
