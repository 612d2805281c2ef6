"""HIP C++, for AMD GPUs. It differs from CUDA C++ only in a few names."""

from __future__ import annotations

from kforge.smith.languages.simt.dialects.cuda import Cuda


class Hip(Cuda):
    """The syntax of HIP C++."""

    language = "hip"
    shared_bytes = 64 << 10
    mask = ""
    shuffle = "__shfl_xor"
    prelude = "#include <hip/hip_runtime.h>"


DIALECT = Hip()
