"""Chooses the sandbox layer: tries the layers of the ladder in order, and takes the first one that works on this
machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.evaluation.sandbox import probes
from kforge.evaluation.sandbox.border import Border, WorkerFolders
from kforge.evaluation.sandbox.layers import Landlock, Layer, Namespaces, NamespacesAsNobody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.sandbox.cells import Warden

LADDER = ("namespaces", "landlock")
"""Names of the layers, the best first. If none works, programs are refused, unless the user gives `--unsafe`."""
UNSAFE = Layer.name
"""Name of the layer without a sandbox."""
_TRIES = 2
"""How often a layer is tried before a weaker one is taken: on a busy machine a good layer may fail once. One that an
attack got through is not tried again."""


class Trial(NamedTuple):
    """What was found when a layer was tried. A layer works if both are empty."""

    breaches: list[str]
    """A line for each attack that succeeded."""
    failures: list[str]
    """A line for each necessary action that failed."""

    @property
    def reason(self) -> str:
        """Return why the layer does not work here, in one line; empty if it works."""
        return " ".join(", ".join([*self.breaches, *self.failures]).split())[:300]


class NoSandboxError(Exception):
    """No layer of the ladder works here. The message says in one line why."""


def choose(ladder: Sequence[str], border: Border, folder: Path, warden: Warden | None = None) -> Layer:
    """Return the first layer of the ladder that works, ready for use. Its description says which better ones failed,
    and why. Raises NoSandboxError if none works.

    This process must have one thread; it enters the namespaces of the layer and cannot leave them. The layers are tried
    in `folder`. `warden` is passed to the chosen layer.
    """
    why: list[str] = []
    for name in ladder:
        for layer in _ways(name):
            reason = "" if layer is Layer else _fault(layer, border, folder)
            if not reason:
                chosen = layer(border, warden)
                chosen.passed_over = "; ".join(why)
                return chosen
            why.append(f"{'namespaces as nobody' if layer is NamespacesAsNobody else name}: {reason}")
    if _in_container():
        why.append("this is a container, whose settings may forbid sandboxes")
    raise NoSandboxError(
        f"no sandbox works here ({'; '.join(why) or 'none was allowed'}); see docs/threat-model.md, "
        "or use --unsafe to run programs without a sandbox"
    )


def _ways(name: str) -> tuple[type[Layer], ...]:
    """Return the classes to try for the name of a layer, in order."""
    match name:
        case "namespaces":
            return (NamespacesAsNobody, Namespaces) if os.geteuid() == 0 else (Namespaces,)
        case "landlock":
            return (Landlock,)
    assert name == UNSAFE
    return (Layer,)


def _fault(layer: type[Layer], border: Border, folder: Path) -> str:
    """Return why a layer does not work here, after _TRIES attempts; empty if one of them works."""
    for attempt in range(_TRIES):
        trial = _tried(layer, border, folder / f"try-{attempt}")
        if not trial.reason or trial.breaches:
            break
    return trial.reason


def _tried(layer: type[Layer], border: Border, folder: Path) -> Trial:
    """Try a layer in a child process, because some steps cannot be undone."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.write(write, json.dumps(_attempt(layer, border, folder)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return Trial(*json.loads(said)) if said else Trial([], ["the attempt ended without an answer"])


def _attempt(layer: type[Layer], border: Border, folder: Path) -> Trial:
    """Start a worker in the layer and attack from inside."""
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
            last_words = place.log.read_text().strip().splitlines()
            breaches, failures = json.loads(said) if said else ([], [*last_words[-1:], "it died"][:1])
            return Trial(breaches + probes.damage(outside), failures)
    except OSError as error:
        return Trial([], [str(error) or type(error).__name__])


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))
