"""Forge two layers of a small transformer, swap them in, train one step, save the model and load it again."""

import copy

import torch
from torch import nn

import kforge

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False).eval()
plain = copy.deepcopy(model)

# One attempt by the built-in generator, measured once: leave `quick` out to let kforge search longer.
quick = {"iterations": 1, "replications": 0, "sanitize": False, "compile_baseline": False}
for index in (0, 2):
    model.layers[index] = kforge.forge(model.layers[index], [torch.randn(8, 32, 64)], platform="cpu", **quick)
    print(f"layer {index}: {model.layers[index].report}")

# The kernels run at the shape that they were forged for; at other shapes the layers run as they always did.
with torch.no_grad():
    for shape in ((8, 32, 64), (2, 32, 64), (3, 7, 64)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), plain(x))
        print(f"same output at {shape}")

# Gradients come from the layers themselves, so training is as before, and the kernels follow the new weights.
before = [parameter.detach().clone() for parameter in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
(model.train()(x) - torch.randn(shape)).square().mean().backward()
optimizer.step()
moved = sum(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
print(f"{moved} of {len(before)} parameters moved")

torch.save(model.eval(), "forged_transformer.pt")
loaded = torch.load("forged_transformer.pt", weights_only=False)
with torch.no_grad():
    x = torch.randn(8, 32, 64)
    torch.testing.assert_close(loaded(x), model(x))
print(f"saved and loaded: {type(loaded.layers[0]).__name__}, {loaded.layers[0].finding}")
