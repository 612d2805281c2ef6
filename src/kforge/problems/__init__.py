"""Problems: PyTorch modules to make faster, from a file, a directory or a live module.

Importing this room does not import torch: `load`, `discover` and `open_suite` only read source text. What needs torch
is in `instance` (run a problem), `inputs` (inputs of other kinds) and `live` (a problem from an `nn.Module`).
"""

from kforge.problems.discovery import discover
from kforge.problems.source import REQUIRED_NAMES, load
from kforge.problems.suite import Suite, Task, open_suite

__all__ = ["REQUIRED_NAMES", "Suite", "Task", "discover", "load", "open_suite"]
