"""The sandbox: what a program may reach while it is built, verified and timed.

Covered, by the layer that is used (`ladder`): reading and writing outside its own folders, the network, other
processes, devices, dangerous system calls, survivors. Not covered: the accelerator's driver is shared, memory and
processor time are not reserved, and side channels stay open. docs/threat-model.md says it layer by layer.
"""

from kforge.evaluation.sandbox.border import Border, WorkerFolders
from kforge.evaluation.sandbox.cells import Freezer, Warden
from kforge.evaluation.sandbox.ladder import LADDER, UNSAFE, NoBorder, choose
from kforge.evaluation.sandbox.layers import Layer

__all__ = ["LADDER", "UNSAFE", "Border", "Freezer", "Layer", "NoBorder", "Warden", "WorkerFolders", "choose"]
