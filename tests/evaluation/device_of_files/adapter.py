"""A device that two processes share memory with, without one: allocations are files that both map.

So everything that is done for a device (inputs made and outputs read where they lie, memory that crosses by handles)
runs on any machine. What a program allocates by itself is no file; such memory is copied out of its process when it is
opened, which is late enough, because a worker is held still by then.

It runs no kernels either: a program says by `launches.ran(name, seconds)` what it would have run, and for how long.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import types
import weakref
from pathlib import Path

import torch

from kforge.errors import PlatformError
from kforge.platforms import Adapter as Base
from kforge.platforms import Allocation
from kforge.platforms.kernels import Run, summary
from kforge.platforms.nvidia import kernels as nvidia_kernels

PAGE = 4096
WINDOW = 1 << 18
"""How much of a program's own memory is shown around an address."""
_serial = itertools.count()

launches = types.ModuleType("launches")
launches.runs = []
launches.ran = lambda name, seconds: launches.runs.append((name, seconds))
sys.modules["launches"] = launches


class Files:
    alignment = 512

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ours: dict[int, tuple[Path, int]] = {}

    def allocate(self, size: int) -> torch.Tensor:
        path = self._folder / f"{os.getpid()}-{next(_serial)}"
        path.touch()
        os.truncate(path, size)
        flat = self._mapped(path, size)
        self._ours[flat.data_ptr()] = path, size
        weakref.finalize(flat.untyped_storage(), self._ours.pop, flat.data_ptr())
        return flat

    def export(self, address: int) -> Allocation:
        if address in self._ours:
            path, size = self._ours[address]
            return Allocation(address, size, f"{path}:{size}")
        base = address // PAGE * PAGE
        # of no size, so that the worker asks again for every output: what `open` returns is a copy of that moment
        return Allocation(base, 0, f"{os.getpid()}:{base}:{next(_serial)}")

    def open(self, handle: str) -> torch.Tensor:
        match handle.split(":"):
            case [path, size] if Path(path).parent == self._folder:
                return self._mapped(Path(path), int(size))
            case [pid, base, _]:
                with Path(f"/proc/{int(pid)}/mem").open("rb", buffering=0) as memory:
                    memory.seek(int(base))
                    return torch.frombuffer(bytearray(memory.read(2 * WINDOW)), dtype=torch.uint8)
        raise PlatformError("there is no such memory")

    def free(self) -> int:
        """As much as a test says, or plenty."""
        told = self._folder / "free"
        return int(told.read_text()) if told.exists() else 1 << 40

    def within_reach(self) -> int:
        return self.free()

    def trim(self) -> None:
        pass

    @staticmethod
    def _mapped(path: Path, size: int) -> torch.Tensor:
        with path.open("r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)


class Adapter(Base):
    def device_memory(self) -> Files:
        folder = Path(os.environ["KFORGE_TEST_DEVICE"])
        self._memory = getattr(self, "_memory", None) or Files(folder)
        return self._memory

    def kernel_owners(self, program):
        return nvidia_kernels.owners(program)

    def watch(self, call):
        launches.runs.clear()
        call()
        now = itertools.accumulate((round(seconds * 1e9) for _, seconds in launches.runs), initial=0)
        ran = [(name, round(seconds * 1e9)) for name, seconds in launches.runs]
        return summary([Run(name, start, start + length) for (name, length), start in zip(ran, now, strict=False)])

    def environment(self) -> dict[str, str]:
        return {"KFORGE_TEST_DEVICE": os.environ["KFORGE_TEST_DEVICE"]}
