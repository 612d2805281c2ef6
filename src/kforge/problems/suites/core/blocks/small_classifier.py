"""A small convolutional network from image to log-probabilities."""

import torch
from torch import nn

BATCH = 8
SIDE = 32
WIDTH = 16
CLASSES = 10


class Model(nn.Module):
    def __init__(self, side, width, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classes = nn.Linear(2 * width * (side // 4) ** 2, classes)

    def forward(self, image):
        return torch.log_softmax(8.0 * self.classes(self.features(image).flatten(1)), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [SIDE, WIDTH, CLASSES]
