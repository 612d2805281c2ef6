"""The door of a worker that is a new interpreter, and no copy of the nursery: under a tool, or where nothing forks."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    gc.disable()  # what is imported stays: looking for garbage among it takes a tenth of the time
    from kforge.evaluation import worker

    gc.freeze()
    gc.enable()
    worker.serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
