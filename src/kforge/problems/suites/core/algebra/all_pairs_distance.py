"""For every point of a cloud, the sum of squared distances to all the others."""

import torch
from torch import nn

BATCH = 8
POINTS = 256
FEATURES = 8


class Model(nn.Module):
    def forward(self, points):
        difference = points[:, :, None, :] - points[:, None, :, :]
        return difference.pow(2).sum(dim=(2, 3))


def get_inputs():
    return [torch.randn(BATCH, POINTS, FEATURES)]


def get_init_inputs():
    return []
