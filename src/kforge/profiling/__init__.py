"""Profiles: where a program's time goes, and how far it is from what the device allows.

Importing this package does not import torch. Only `torch_profile` does; it runs inside the worker.
"""

from kforge.profiling.digest import digest
from kforge.profiling.imported import digest_of_export
from kforge.profiling.roofline import BUSY_MACHINE, rates, roofline

__all__ = ["BUSY_MACHINE", "digest", "digest_of_export", "rates", "roofline"]
