"""The results of a program's calls, copied to where the worker cannot change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.evaluation.transport.aliases import Aliases


@dataclass(frozen=True)
class Output:
    """The result of one call, copied to where the worker cannot change it before it is checked."""

    value: Any
    aliases: Aliases
    """As the worker says; in timed blocks the referee checks it itself, see `WorkerClient.block_aliases`."""
    changed_inputs: Any
    """The inputs as the call has left them, or None where it has changed nothing that can be seen from here."""


@dataclass(frozen=True)
class Left:
    """What a paced call left when it was over, before the next one began."""

    output: Any
    changed_inputs: Any
    """None where the inputs were left as they were."""
    state: Any
