"""Compiles and launches HIP C++ on AMD GPUs, through a torch that was built for ROCm. Without such a torch, clang only
checks the source.

    library = inline.compile(source, "hip")
    library.kernel_name(x, out, x.numel(), threads=x.numel(), group_size=256, shared=0)

A launch looks like one of CUDA. The check is a real compilation by clang for gfx90a. The authors have never run
launches on an AMD GPU.
"""

from kforge.inline.hip.library import build

__all__ = ["build"]
