"""Entry point of a worker in a new interpreter, for tools that wrap it and systems where torch cannot be forked."""

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
