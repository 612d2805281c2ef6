"""What is written to outputs that a program has returned."""

import dataclasses
import math
import mmap
import os
import random
import tempfile

import numpy as np
import pytest
import torch

from kforge.evaluation.transport.shared_memory import address
from kforge.evaluation.worker_client.overwriting import (
    ELEMENTS,
    Edit,
    edits_of,
    overwrite,
    overwrite_in_process,
    scale_of,
)

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


def edit(output: torch.Tensor, *, whole: bool, seed: int = 7, scale: float | None = None) -> Edit:
    chance = random.Random(seed)
    chosen = edits_of(output.shape, output, scale_of(output) if scale is None else scale, chance, 2)[1]
    return chosen.stretched(chance) if whole else chosen


def write(output: torch.Tensor, edit: Edit, *, from_outside: bool) -> torch.Tensor:
    """Overwrite it; returns a mask of what has changed."""
    before = output.clone()
    if from_outside:
        assert overwrite_in_process(os.getpid(), address(output), edit)
    else:
        overwrite(output, edit)
    return ~torch.eq(before, output)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("from_outside", [False, True])
@pytest.mark.parametrize("value", [0, 1])
def test_some_elements_are_written_or_a_stretch_of_them(dtype: torch.dtype, from_outside: bool, value: int) -> None:
    """Cause: masks of mostly ones were overwritten by ones."""
    for seed in range(20):
        output = torch.full((64, 32), value, dtype=dtype)
        changed = write(output, edit(output, whole=False, seed=seed), from_outside=from_outside)
        assert 1 <= int(changed.sum()) <= ELEMENTS
        output = torch.full((64, 32), value, dtype=dtype)
        places = write(output, edit(output, whole=True, seed=seed), from_outside=from_outside).flatten().nonzero()
        assert 1 <= len(places) == places.max() - places.min() + 1


def test_stretches_are_anywhere_and_often_the_whole() -> None:
    """Cause: a program that looked at two fixed elements knew whether its memory had been overwritten."""
    changed = []
    for seed in range(200):
        output = torch.ones(1000)
        changed.append(write(output, edit(output, whole=True, seed=seed), from_outside=False))
    stretches = torch.stack(changed)
    assert 0.1 < stretches.all(1).float().mean() < 0.5
    assert bool((stretches[:, (77, 901)].sum(1) == 0)[stretches.any(1)].any())
    assert bool(stretches.any(0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 3e4, 1e9])
def test_numbers_are_on_the_scale_of_the_output(dtype: torch.dtype, scale: float) -> None:
    """Cause: numbers of one to two were below the tolerance beside large ones."""
    output = torch.zeros(64, 64, dtype=dtype)
    output[:, 0] = min(scale, torch.finfo(dtype).max)
    largest = scale_of(output)
    for seed in range(20):
        written = output.clone()
        changed = write(written, edit(output, whole=False, seed=seed), from_outside=True)
        assert changed.any()
        assert bool(written.isfinite().all())
        assert float((written - output).abs()[changed].double().min()) >= min(largest, torch.finfo(dtype).max / 4) * 0.9


def test_a_number_that_was_written_before_does_not_grow() -> None:
    """A module may keep its output, and return it again."""
    output = torch.rand(4)
    scale = scale_of(output)
    for seed in range(100):
        overwrite(output, edit(output, whole=False, seed=seed, scale=scale))
    assert float(output.max()) <= 3 * scale


def test_a_scale_is_that_of_finite_numbers() -> None:
    assert scale_of(torch.tensor([[1.0, -5.0], [math.inf, math.nan]])) == 5.0
    assert scale_of(torch.randn(8, 8).expand(3, 8, 8)[..., ::2]) > 0
    assert scale_of(torch.zeros(0)) == scale_of(torch.ones(3, dtype=torch.int64)) == 0.0


@pytest.mark.parametrize("from_outside", [False, True])
def test_what_lies_between_the_elements_of_an_output_stays(from_outside: bool) -> None:
    buffer = torch.zeros(64, 32)
    for whole in (False, True):
        write(buffer[:, ::2], edit(buffer[:, ::2], whole=whole), from_outside=from_outside)
    assert int((buffer[:, 1::2] != 0).sum()) == 0
    assert 1 <= int((buffer != 0).sum()) <= 2 * ELEMENTS


@pytest.mark.parametrize("from_outside", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_an_output_that_overlaps_itself_is_written_as_well(from_outside: bool, whole: bool) -> None:
    """Cause: expanded outputs were never overwritten, and their memory was used again."""
    for output in (torch.zeros(16, 4).expand(8, 16, 4), torch.zeros(16, 4).unfold(0, 5, 2)):
        assert write(output, edit(output, whole=whole), from_outside=from_outside).any()


def test_an_output_of_another_shape_than_the_sample_is_written() -> None:
    for sample in (torch.ones(2, 2), torch.ones(0, 5), torch.ones(3)):
        for output in (torch.zeros(9, 9), torch.zeros(())):
            overwrite(output, edits_of(output.shape, sample, 1.0, random.Random(3), 1)[0])
            assert output.any()


def test_each_output_is_written_to_elsewhere_by_what_is_wrong_there() -> None:
    sample = torch.arange(1000) % 2
    edits = edits_of(sample.shape, sample, 0.0, random.Random(5), 8)
    assert len({place for each in edits for place in each.places}) > ELEMENTS
    for each in edits:
        assert [int(sample[place]) for place in each.places] == [1 - int(number) for number in each.numbers]


def test_what_cannot_be_written_is_left_alone() -> None:
    empty, whole = torch.zeros(0, 4), edit(torch.zeros(0, 4), whole=True)
    overwrite(empty, whole)
    assert overwrite_in_process(os.getpid(), address(empty), whole)
    output = torch.zeros(4)
    assert overwrite_in_process(2**22 - 1, address(output), edit(output, whole=True)), "no such process"


def test_memory_that_cannot_be_written_to_is_told() -> None:
    """Cause: one file mapped twice, read-only in the output and writable elsewhere, was used again and again."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        shown = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
        tensor = torch.frombuffer(np.frombuffer(shown, dtype=np.float32).copy(), dtype=torch.float32)
        place = address(tensor)
        at = np.frombuffer(shown, dtype=np.uint8).__array_interface__["data"][0]
        elements = edit(tensor, whole=False)
        assert not overwrite_in_process(os.getpid(), dataclasses.replace(place, offset=at), elements)
        assert overwrite_in_process(os.getpid(), place, edit(tensor, whole=True))


def test_the_same_edit_writes_the_same_to_other_layouts() -> None:
    ours, theirs = torch.zeros(32, 16), torch.zeros(16, 32).T
    elements = edit(ours, whole=False)
    overwrite(ours, elements)
    overwrite_in_process(os.getpid(), address(theirs), elements)
    assert torch.equal(ours, theirs)
    assert ours.any()
