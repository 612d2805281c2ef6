"""HIP C++ on AMD's GPUs, by a torch that was built for ROCm; elsewhere a source is only checked by clang.

    library = inline.compile(source, "hip")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256, shared=0)

A launch has the form of CUDA's. The check here is real (clang compiles for gfx90a); launches have never been tried on
an AMD GPU by the authors.
"""

from kforge.inline.hip.library import build

__all__ = ["build"]
