"""The single-shot example of this platform."""
import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl
from torch import nn


def kernel(x_ref, weight_ref, eps_ref, out_ref):
    # A block holds whole rows, so memory is read once and written once.
    x = x_ref[...]
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps_ref[0, 0])
    out_ref[...] = x * scale * weight_ref[...]


@jax.jit
def rms_norm(x, weight, eps):
    rows, features = x.shape
    block = pl.BlockSpec((64, features), lambda row: (row, 0))
    whole = pl.BlockSpec((1, features), lambda row: (0, 0))
    single = pl.BlockSpec((1, 1), lambda row: (0, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(kernel, shape, grid=(pl.cdiv(rows, 64),), in_specs=[block, whole, single], out_specs=block)
    return call(x, weight.reshape(1, features), eps.reshape(1, 1))


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.detach().contiguous().view(-1, x.shape[-1])
        arrays = jnp.from_dlpack(rows), jnp.from_dlpack(self.weight.detach()), jnp.float32(self.eps)
        return torch.from_dlpack(rms_norm(*arrays).block_until_ready()).view(x.shape)
