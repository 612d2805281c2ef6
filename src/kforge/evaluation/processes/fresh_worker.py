"""Entry point of a worker that is a new interpreter: under a tool's command, or where torch does not survive a fork."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Import the worker's code, and serve the referee until it is gone."""
    gc.disable()  # imported objects are never garbage, and searching them takes a tenth of the time
    from kforge.evaluation.worker import main as worker

    gc.freeze()
    gc.enable()
    worker.serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
