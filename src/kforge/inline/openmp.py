"""Finds the OpenMP runtime that torch uses, so that kernels use the same one.

torch's wheels bundle their own OpenMP runtime. A second runtime in the process would have a second pool of threads: the
two would oversubscribe the cores, and `torch.set_num_threads` would control only torch's. There are two cases:

- The x86-64 wheel of torch 2.13 has `libgomp.so.1` under its usual soname. A kernel linked with plain `-fopenmp` gets
  torch's copy, but only if torch was loaded first.
- A wheel may rename the file (auditwheel makes `libgomp-<hash>.so.1.0.0`). A kernel linked with plain `-fopenmp` then
  loads the system's runtime as well.

So a kernel is linked against the very file that torch has loaded, and never loaded before torch. The dynamic loader
then finds that runtime by its soname in both cases.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from kforge.inline.shared_objects import origin


@cache
def torch_runtime() -> Path | None:
    """Return the OpenMP library that torch itself uses, or None if this torch was built without OpenMP."""
    import torch

    ending = "dylib" if sys.platform == "darwin" else "so"
    native = Path(torch.__file__).parent / "lib" / f"libtorch_cpu.{ending}"
    try:
        # Looked up through torch's own library, so another package's runtime cannot be taken for torch's.
        function = ctypes.CDLL(str(native)).omp_get_max_threads
    except (OSError, AttributeError):
        return None
    return origin(function)
