"""The message with which the orchestrator configures a new referee: paths, and how candidates are judged.

It is a wire message and not a JSON record, so that a referee can start its fork server before it imports pydantic,
which records need.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.evaluation.transport.wire import Tree, WireMessage


@dataclass(frozen=True)
class RefereeSetup(WireMessage, kind=129):
    """Settings of a referee. It is the first message that a referee gets."""

    platform_folder: str
    """Folder of the platform, with its manifest and adapter."""
    cache: str
    """Folder for kept measurements and builds."""
    work: str
    """Folder for logs and for the folders of workers. The judge removes it when it is closed."""
    tool_path: str
    """PATH of workers, for compilers."""
    private: str
    """JSON list of files and folders of the user that no worker may see, even if PATH names a folder that contains
    them."""
    threads: int
    """Number of processors that programs may use."""
    precision: str
    """Declared precision, which decides the tolerance: `strict`, `tf32` or `half`."""
    track: str
    """`library`: library kernels may do the work. `custom`: the program's own kernels must do it."""
    compile_baseline: bool
    """Whether candidates are also compared with `torch.compile`."""
    compile_mode: str
    """The mode of `torch.compile`."""
    call_deadline: float
    """Seconds that one call of a candidate, or one timed block, may take."""
    timing_seconds: float
    """Seconds for which a candidate is timed. A longer time gives a narrower interval."""
    timing_cap: float
    """Most seconds of timing, as long as it is undecided whether the candidate is faster."""
    memory: int
    """Bytes that the referee and its workers may use together; 0 means all free memory."""
    worker_environment: Tree
    """Environment variables that the platform adds for workers, by name."""
    device_nodes: Tree
    """Device nodes in /dev that a worker may open, as patterns."""
    ladder: Tree
    """The sandbox layers that may be used, the best first."""
