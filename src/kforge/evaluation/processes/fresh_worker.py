"""Entry point of a worker that is a new interpreter: under a tool's command, or where torch does not survive a fork."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    gc.disable()  # imported objects stay, and searching them for garbage takes a tenth of the time
    from kforge.evaluation.worker import main as worker

    gc.freeze()
    gc.enable()
    worker.serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
