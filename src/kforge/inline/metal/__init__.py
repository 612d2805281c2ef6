"""Metal Shading Language: on the GPU of a Mac, and on any Linux machine compiled by clang, run and checked on the CPU.

    library = inline.compile(source, "metal")
    library.kernel_name(out, x, threads=x.numel(), group_size=256)

A launch has the form of `torch.mps.compile_shader`; `install` puts the emulator behind that name where there is no MPS.
It says whether a kernel is right, with the line of the source where it is not. It says nothing about speed.
"""

from kforge.inline.metal.library import MetalKernel, Options, build, options
from kforge.inline.metal.shader import compile_for_machine, compile_shader, install

__all__ = ["MetalKernel", "Options", "build", "compile_for_machine", "compile_shader", "install", "options"]
