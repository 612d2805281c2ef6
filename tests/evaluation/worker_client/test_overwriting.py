"""What is written to outputs that a program has returned."""

import os

import pytest
import torch

from kforge.evaluation.transport.shared_memory import address
from kforge.evaluation.worker_client.overwriting import ELEMENTS, overwrite, overwrite_in_process

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("from_outside", [False, True])
def test_some_elements_are_written_or_all_of_them(dtype: torch.dtype, from_outside: bool) -> None:
    for whole in (False, True):
        output = torch.zeros(64, 32, dtype=dtype)
        if from_outside:
            overwrite_in_process(os.getpid(), address(output), whole=whole)
        else:
            overwrite(output, whole=whole)
        written = int((output.view(torch.uint8).view(64 * 32, -1) != 0).any(1).sum())
        assert written == 64 * 32 if whole else 1 <= written <= ELEMENTS


def test_what_lies_between_the_elements_of_an_output_stays() -> None:
    buffer = torch.zeros(64, 32)
    for whole in (False, True):
        overwrite_in_process(os.getpid(), address(buffer[:, ::2]), whole=whole)
    assert int((buffer[:, 1::2] != 0).sum()) == 0
    assert int((buffer != 0).sum()) <= ELEMENTS


def test_what_cannot_be_written_is_left_alone() -> None:
    overwrite(torch.zeros(0, 4), whole=True)
    overwrite(torch.zeros(1, 4).expand(8, 4), whole=False)
    overwrite_in_process(os.getpid(), address(torch.zeros(0, 4)), whole=False)
    overwrite_in_process(2**22 - 1, address(torch.zeros(4)), whole=True)  # a process that is not there
