"""An answer without a program: the class asked for is not there."""

import torch


def softmax(scores, bias, scale):
    return torch.softmax(scores * scale + bias, dim=-1)
