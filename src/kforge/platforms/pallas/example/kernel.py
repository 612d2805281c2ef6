"""The single-shot example of this platform."""

from functools import partial

import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl
from torch import nn


@partial(jax.jit, static_argnames="eps")
def rms_norm(x, weight, eps):
    def kernel(x_ref, weight_ref, out_ref):
        # A block holds whole rows, so memory is read once and written once.
        values = x_ref[...]
        scale = jax.lax.rsqrt(jnp.mean(values * values, axis=-1, keepdims=True) + eps)
        out_ref[...] = values * scale * weight_ref[...]

    rows, features = x.shape
    block = pl.BlockSpec((64, features), lambda row: (row, 0))
    whole = pl.BlockSpec((1, features), lambda _: (0, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(kernel, out_shape=shape, grid=(pl.cdiv(rows, 64),), in_specs=[block, whole], out_specs=block)
    return call(x, weight.reshape(1, features))


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.detach().contiguous().view(-1, x.shape[-1])
        out = rms_norm(jnp.from_dlpack(rows), jnp.from_dlpack(self.weight.detach()), self.eps)
        return torch.from_dlpack(out.block_until_ready()).view(x.shape)
