"""The options that the orchestrator sends to a referee once, when it opens: paths, and the rules of judging.

A frame and not a record, so that a referee can start its fork server before it imports what records need.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.evaluation.transport.wire import Tree, WireMessage


@dataclass(frozen=True)
class RefereeSetup(WireMessage, kind=129):
    platform_folder: str
    cache: str
    work: str
    tool_path: str
    private: str
    """A list as JSON: folders of the user that no worker may see, also where PATH names one that holds them."""
    threads: int
    precision: str
    track: str
    """`library`: library kernels may do the work; `custom`: the program's own kernels must do it."""
    compile_baseline: bool
    """Whether candidates are also compared with `torch.compile`."""
    compile_mode: str
    """The mode of `torch.compile`."""
    call_deadline: float
    """Seconds that one call of a candidate, or one timed block, may take."""
    timing_seconds: float
    """Seconds for which a candidate is timed: longer makes the interval narrower."""
    timing_cap: float
    """Most seconds of timing, while it is not decided whether the candidate is faster."""
    memory: int
    """Bytes that referee and workers may use together; 0 means all free memory."""
    worker_environment: Tree
    """Variables that the platform adds to a worker's environment: names and values."""
    device_nodes: Tree
    """What a worker may open in /dev, as the platform names it."""
    ladder: Tree
    """The sandbox layers that may be used, best first."""
