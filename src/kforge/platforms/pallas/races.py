"""JAX's simulation of a TPU as the sanitizer of Pallas kernels.

Covered: memory that a kernel uses while a transfer (`make_async_copy`) still fills or reads it, semaphores that are
never waited for, and two cores that write the same memory in a grid dimension that is declared parallel. Memory that
was never written, and memory that is read out of bounds, holds NaN. The silence of the simulation counts only if it
also reported a race that was planted in the same process. Not covered: code outside of kernels. It finds honest
mistakes; it is not a security boundary.
"""

from __future__ import annotations

import re
from typing import Any

from kforge.errors import PlatformError
from kforge.platforms import Sanitizer, SanitizerReport

PLANTED = "kforge_planted_race"
_TITLE = "RACE DETECTED"
_ACCESS = re.compile(
    r"^\s+(?P<kind>read|write) of \('(?P<memory>\w+)'.*?(?P<file>[^\s,]+):(?P<line>\d+):\d+ \((?P<function>[^)]*)\)"
)


def sanitizer(version: str) -> Sanitizer:
    """Return the sanitizer of this version of JAX."""
    return Sanitizer(
        name=" ".join(filter(None, ("JAX", version, "race detector"))),
        read=read,
        # set by a command, because the worker's own environment is cleared before a program imports JAX
        wrapper=("env", "JAX_PALLAS_ENABLE_DEBUG_CHECKS=1", "PYTHONUNBUFFERED=1"),
        planted=PLANTED,
        proven=lambda log: any(PLANTED in "\n".join(block) for block in _blocks(log)),
        unsuited=without_kernels,
        conditions="memory that was never written, and memory beyond an array, holds NaN",
    )


def without_kernels(source: str) -> str | None:
    """Return why a program contains nothing to check. None if it has a Pallas kernel."""
    return None if "pallas_call" in source else "it has no Pallas kernel"


def plant(error: str) -> None:
    """Cause the race that must be reported, so that silence about the program can be trusted. Raises PlatformError for
    an unknown name."""
    if error != PLANTED:
        raise PlatformError(f"there is no planted error named {error}")
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas
    from jax.experimental.pallas import tpu

    def kforge_planted_race(x: Any, out: Any, scratch: Any, semaphore: Any) -> None:
        copy = tpu.make_async_copy(x, scratch, semaphore)
        copy.start()
        out[...] = scratch[...]  # the copy may not have arrived
        copy.wait()

    shape = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    pallas.pallas_call(
        kforge_planted_race,
        out_shape=shape,
        in_specs=[pallas.BlockSpec(memory_space=pallas.ANY)],
        scratch_shapes=[tpu.VMEM(shape.shape, shape.dtype), tpu.SemaphoreType.DMA],
    )(jnp.zeros(shape.shape)).block_until_ready()


# --- reports --------------------------------------------------------------------------------------------------


def read(log: str) -> SanitizerReport | None:
    """Return the first report in a log that is not about the planted race. None if there is none."""
    blocks = [block for block in _blocks(log) if PLANTED not in "\n".join(block)]
    if not blocks:
        return None
    accesses = [found for line in blocks[0] if (found := _ACCESS.match(line))]
    what = " and ".join(f"a {one['kind']} of {one['memory']} at line {one['line']}" for one in accesses)
    more = len(blocks) - 1
    counted = f" (and {more} more report{'s' * (more > 1)})" if more else ""
    frames = [f"    in {one['function']} at {one['file']}:{one['line']}" for one in accesses]
    return SanitizerReport(f"race between {what or 'two accesses'}{counted}"[:500], "\n".join([*blocks[0], *frames]))


def _blocks(log: str) -> list[list[str]]:
    """Return the reports in a log, each as its title and the indented lines below it."""
    blocks: list[list[str]] = []
    inside = False
    for line in log.splitlines():
        if line.strip() == _TITLE:
            blocks.append([_TITLE])
            inside = True
        elif inside and line.startswith("  "):
            blocks[-1].append(line)
        else:
            inside = False
    return blocks
