"""Profiles: where a program's time goes, and how far it is from what the device allows.

Importing this package does not import torch. Only `torch_profile` does; it runs inside the worker.
"""

from kforge.profiling.digest import digest
from kforge.profiling.imported import digest_of_export
from kforge.profiling.roofline import roofline

__all__ = ["digest", "digest_of_export", "roofline"]
