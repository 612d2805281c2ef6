"""The sandbox: limits what a program can access while it is built, verified and timed.

Protected, depending on the layer in use (`ladder.py`): files outside the program's own folders, the network, other
processes, devices, dangerous system calls; no process survives. Not protected: the accelerator's driver is shared,
memory and processor time are not reserved, and side channels stay open. docs/threat-model.md has the details by layer.
"""

from kforge.evaluation.sandbox.border import Border, WorkerFolders
from kforge.evaluation.sandbox.cells import Freezer, Warden
from kforge.evaluation.sandbox.ladder import LADDER, UNSAFE, NoSandboxError, choose
from kforge.evaluation.sandbox.layers import Layer

__all__ = ["LADDER", "UNSAFE", "Border", "Freezer", "Layer", "NoSandboxError", "Warden", "WorkerFolders", "choose"]
