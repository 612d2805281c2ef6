import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    exponentials = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + column, exponentials / tl.sum(exponentials, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        softmax[(x.numel() // columns,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return out
