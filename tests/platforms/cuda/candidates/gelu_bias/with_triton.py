import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_bias(x, bias, out, count, features, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside, other=0.0) + tl.load(bias + place % features, mask=inside, other=0.0)
    tl.store(out + place, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 4096),)
        gelu_bias[grid](x, self.bias, out, x.numel(), x.shape[-1], BLOCK=4096, num_warps=8)
        return out
