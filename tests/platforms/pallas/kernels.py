"""A program for tests of the platform pallas: JAX warns at every later fork of a process that has imported it."""

import json
import sys

from kforge.inline import CompileError
from kforge.platforms.pallas import interpreter, races

interpreter.install()
interpreter.install()  # a second time changes nothing

import jax  # noqa: E402 - as a program does, after the worker has made itself ready
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

TILE = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def doubled(x_ref, out_ref):
    out_ref[...] = 2 * x_ref[...]


def sorted_rows(x_ref, out_ref):
    out_ref[...] = jnp.sort(x_ref[...])


def early(x_ref, out_ref, scratch, semaphore):
    copy = pltpu.make_async_copy(x_ref, scratch, semaphore)
    copy.start()
    out_ref[...] = scratch[...]
    copy.wait()


def half_written(x_ref, out_ref):
    out_ref[0:4, :] = x_ref[0:4, :]


def transfer(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=TILE,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM(TILE.shape, TILE.dtype), pltpu.SemaphoreType.DMA],
    )


def refused(call, *arrays):
    try:
        call(*arrays)
    except CompileError as error:
        return str(error)
    return None


def main():
    ones = jnp.ones(TILE.shape)
    spec = pl.BlockSpec((3, 3), lambda i, j: (i, j))
    blocks = pl.pallas_call(
        doubled, out_shape=jax.ShapeDtypeStruct((30, 30), jnp.float32), grid=(10, 10), in_specs=[spec], out_specs=spec
    )
    told = {
        "checks": interpreter.checks_are_on(),
        "doubled": float(pl.pallas_call(doubled, out_shape=TILE)(ones).sum()),
        "compiled": float(jax.jit(pl.pallas_call(doubled, out_shape=TILE, interpret=True))(ones).sum()),
        "sort": refused(pl.pallas_call(sorted_rows, out_shape=TILE), ones),
        "blocks": refused(blocks, jnp.ones((30, 30))),
        "lowered": list(interpreter.lowered()),
    }
    if told["checks"]:
        told["unwritten"] = bool(jnp.isnan(pl.pallas_call(half_written, out_shape=TILE)(ones)[4:]).all())
        transfer(early)(ones).block_until_ready()
        races.plant(races.PLANTED)
    print("\n" + json.dumps(told), file=sys.stderr)  # noqa: T201 - for the test


main()
