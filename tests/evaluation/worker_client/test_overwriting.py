"""What is written to outputs that a program has returned."""

import dataclasses
import mmap
import os
import tempfile

import numpy as np
import pytest
import torch

from kforge.evaluation.transport.shared_memory import address
from kforge.evaluation.worker_client.overwriting import ELEMENTS, overwrite, overwrite_in_process

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)

SEED = 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("from_outside", [False, True])
def test_some_elements_are_written_or_all_of_them(dtype: torch.dtype, from_outside: bool) -> None:
    for whole in (False, True):
        output = torch.zeros(64, 32, dtype=dtype)
        if from_outside:
            overwrite_in_process(os.getpid(), address(output), SEED, whole=whole)
        else:
            overwrite(output, SEED, whole=whole)
        written = int((output.view(torch.uint8).view(64 * 32, -1) != 0).any(1).sum())
        assert written == 64 * 32 if whole else 1 <= written <= ELEMENTS


def test_what_lies_between_the_elements_of_an_output_stays() -> None:
    buffer = torch.zeros(64, 32)
    for whole in (False, True):
        overwrite_in_process(os.getpid(), address(buffer[:, ::2]), SEED, whole=whole)
    assert int((buffer[:, 1::2] != 0).sum()) == 0
    assert int((buffer != 0).sum()) <= ELEMENTS


def test_what_cannot_be_written_is_left_alone() -> None:
    overwrite(torch.zeros(0, 4), SEED, whole=True)
    overwrite(torch.zeros(1, 4).expand(8, 4), SEED, whole=False)
    overwrite_in_process(os.getpid(), address(torch.zeros(0, 4)), SEED, whole=False)
    overwrite_in_process(2**22 - 1, address(torch.zeros(4)), SEED, whole=True)  # a process that is not there


def test_memory_that_cannot_be_written_to_is_told() -> None:
    """Cause: one file mapped twice, read-only in the output and writable elsewhere, was used again and again."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        shown = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
        tensor = torch.frombuffer(np.frombuffer(shown, dtype=np.float32).copy(), dtype=torch.float32)
        place = address(tensor)
        at = np.frombuffer(shown, dtype=np.uint8).__array_interface__["data"][0]
        assert not overwrite_in_process(os.getpid(), dataclasses.replace(place, offset=at), SEED, whole=False)
        assert overwrite_in_process(os.getpid(), place, SEED, whole=True)


def test_the_same_seed_writes_the_same() -> None:
    ours, theirs = torch.zeros(32, 32), torch.zeros(32, 32)
    overwrite(ours, SEED, whole=False)
    overwrite_in_process(os.getpid(), address(theirs), SEED, whole=False)
    assert torch.equal(ours, theirs)
    assert ours.any()
