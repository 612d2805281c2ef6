"""Profiles: what a program's time is spent on, and how far it is from what the device allows.

Importing this room does not import torch; `torch_profile` does, and runs inside the worker.
"""

from kforge.profiling.digest import digest
from kforge.profiling.imported import digest_of_export
from kforge.profiling.roofline import roofline

__all__ = ["digest", "digest_of_export", "roofline"]
