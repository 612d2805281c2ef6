"""Problems: PyTorch modules to make faster, from a file, a directory or a live module.

Importing this package does not import torch: `load`, `discover` and `open_suite` only read source text. These modules
need torch: `instance` (runs a problem), `inputs` (draws other inputs) and `live` (makes a problem from an `nn.Module`).
"""

from kforge.problems.choice import ProblemChoice
from kforge.problems.discovery import discover
from kforge.problems.source import REQUIRED_NAMES, load
from kforge.problems.suite import Suite, Task, open_suite

__all__ = ["REQUIRED_NAMES", "ProblemChoice", "Suite", "Task", "discover", "load", "open_suite"]
