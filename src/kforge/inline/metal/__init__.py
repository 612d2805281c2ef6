"""Compiles and launches Metal Shading Language: on the GPU of a Mac, and on Linux in an emulator that compiles with
clang, runs on the CPU and checks every memory access.

    library = inline.compile(source, "metal")
    library.kernel_name(out, x, threads=x.numel(), group_size=256)

A launch looks like one of `torch.mps.compile_shader`. If torch has no MPS, `install` puts the emulator behind that
name. The emulator shows whether a kernel is correct, and names the source line of an error. It says nothing about
speed.
"""

from kforge.inline.metal.library import MetalKernel, Options, build, options
from kforge.inline.metal.shader import compile_for_machine, compile_shader, install

__all__ = ["MetalKernel", "Options", "build", "compile_for_machine", "compile_shader", "install", "options"]
