"""Runs programs in Triton's interpreter, as a process of its own, because triton decides when it is imported.

Each line of standard input names a folder: every NAME.py there is run with the state and the inputs of NAME.given.pt,
and what it returns is put into NAME.got.pt; what it raises, as a string. Then the line is repeated on standard output.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

import torch

from kforge.platforms.triton.preload import preload

preload()  # as every worker does

for line in sys.stdin:
    for program in sorted(Path(line.rstrip("\n")).glob("*.py")):
        state, inputs = torch.load(program.with_suffix(".given.pt"))
        try:
            model = runpy.run_path(str(program))["ModelNew"]()  # triton reads a kernel's source from its file
            model.load_state_dict(state)
            with torch.no_grad():
                got = [model(*each) for each in inputs]
        except Exception:
            got = traceback.format_exc()
        torch.save(got, program.with_suffix(".got.pt"))
    sys.stdout.write(line)
    sys.stdout.flush()
