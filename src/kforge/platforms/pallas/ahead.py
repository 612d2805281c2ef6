"""Lowers a program's kernels for a TPU in a separate process: `ahead.py kernel.py`.

It calls the program's module once, on the inputs of the reference beside it; every kernel is lowered before it runs.
Only the platform's own example is built this way, never foreign code. (torch)
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch

from kforge.inline import CompileError
from kforge.platforms.pallas import interpreter


def main() -> None:
    """Lower all kernels of the program that is named on the command line. Exits with a message if one cannot be
    lowered."""
    kernel = Path(sys.argv[1])
    interpreter.install()
    reference = runpy.run_path(str(kernel.with_name("reference.py")))
    try:
        model = runpy.run_path(str(kernel))["ModelNew"](*reference["get_init_inputs"]())
        with torch.no_grad():
            model(*reference["get_inputs"]())
    except CompileError as error:
        sys.exit(str(error))
    if not interpreter.lowered():
        sys.exit("the program launches no kernel")


if __name__ == "__main__":
    main()
    # no shutdown of the interpreter: on a busy machine the thread pools of JAX sometimes abort the process in it
    os._exit(0)
