"""Finds the OpenMP runtime that torch runs on, so that kernels run on the same one.

torch's wheels bundle an OpenMP runtime of their own. A second one in the process brings a second pool of threads:
the two oversubscribe the cores, and `torch.set_num_threads` governs only torch's. What was found:

- the x86-64 wheel of torch 2.13 carries `libgomp.so.1` under its usual soname, so a kernel linked with plain
  `-fopenmp` gets torch's copy, but only when torch was loaded first;
- where a wheel renames it (auditwheel makes `libgomp-<hash>.so.1.0.0`), that kernel pulls in the system's as well.

Hence a kernel is linked against the very file that torch has mapped, and never loaded before torch. The dynamic
loader then finds that runtime by its soname, already there, in both cases.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from kforge.inline.shared_objects import origin


@cache
def torch_runtime() -> Path | None:
    """The OpenMP library that torch itself calls, or None when this torch was built without OpenMP."""
    import torch

    ending = "dylib" if sys.platform == "darwin" else "so"
    native = Path(torch.__file__).parent / "lib" / f"libtorch_cpu.{ending}"
    try:
        # Looked up through torch's own library, so another package's runtime cannot be taken for torch's.
        function = ctypes.CDLL(str(native)).omp_get_max_threads
    except (OSError, AttributeError):
        return None
    return origin(function)
