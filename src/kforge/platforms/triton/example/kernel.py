import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x, weight, out, rows, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    # A program takes a few whole rows, so memory is read once and written once.
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, FEATURES)
    inside = (row < rows)[:, None] & (column < features)[None, :]
    place = row[:, None].to(tl.int64) * features + column[None, :]
    values = tl.load(x + place, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=1) / features + eps)
    weights = tl.load(weight + column, mask=column < features, other=0.0)
    tl.store(out + place, values * scale[:, None] * weights[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        features = x.shape[-1]
        rows = x.numel() // features
        grid = (triton.cdiv(rows, 8),)
        block = triton.next_power_of_2(features)
        rms_norm[grid](x, self.weight, out, rows, features, self.eps, ROWS=8, FEATURES=block, num_warps=4)
        return out
