"""Tensors in the memory of another process are read as they are, and no more of it than they name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ChannelError
from kforge.evaluation.transport import process_memory
from kforge.evaluation.transport.process_memory import read_process
from kforge.evaluation.transport.shared_memory import address
from kforge.evaluation.transport.wire import TensorRef
from kforge.problems.tensors import same

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this kernel does not show the memory of a process")
class TestMemoryOfAProcess:
    """The process is this one: to the kernel it is as good as any other."""

    @given(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=4), st.booleans())
    def test_a_tensor_is_read_as_it_is(self, dtype: torch.dtype, shape: list[int], transposed: bool) -> None:
        tensor = torch.randint(0, 2, shape).to(dtype)
        tensor = tensor.transpose(0, -1) if transposed and tensor.dim() > 1 else tensor
        copy = read_process(os.getpid(), address(tensor), limit=1 << 20)
        assert same(copy, tensor)
        assert copy.data_ptr() != tensor.data_ptr() or not tensor.numel()

    @pytest.mark.parametrize(
        "ref",
        [
            TensorRef("float32", (4,), (1,), 8),
            TensorRef("float32", (4,), (1,), -1),
            TensorRef("float32", (4,), (-1,), 4096),
            TensorRef("float32", (1 << 40,), (1,), 4096),
            TensorRef("float32", (4,), (1,), (1 << 63) - 1),
            TensorRef("float32", (2, 4), (1 << 61, 1), 4096),
        ],
    )
    def test_a_place_that_cannot_be_read_is_refused(self, ref: TensorRef) -> None:
        with pytest.raises(ChannelError):
            read_process(os.getpid(), ref, limit=1 << 20)

    @pytest.mark.parametrize(
        "view",
        [
            lambda buffer: buffer[:, :8],
            lambda buffer: buffer[:, 3],
            lambda buffer: buffer[1::2, ::3].T,
            lambda buffer: buffer[:, :1].expand(-1, 9),
            lambda buffer: buffer[None, :, 2:4].expand(3, -1, -1),
            lambda buffer: buffer[2:3, 5:6],
        ],
    )
    @pytest.mark.parametrize(("gap", "piece"), [(1 << 15, 1 << 20), (16, 1 << 20), (1 << 15, 200)])
    def test_a_part_of_a_larger_buffer_is_read_as_it_is(
        self, monkeypatch: pytest.MonkeyPatch, view: Callable[[torch.Tensor], torch.Tensor], gap: int, piece: int
    ) -> None:
        """Cause: an output in place, beside what it was computed from, was refused for the gaps between its rows."""
        monkeypatch.setattr(process_memory, "WIDE_GAP", gap)
        monkeypatch.setattr(process_memory, "PIECE", piece)
        tensor = view(torch.randn(12, 40))
        assert same(read_process(os.getpid(), address(tensor), limit=tensor.nbytes), tensor)

    def test_no_more_is_kept_than_a_tensor_names(self) -> None:
        tensor = torch.randn(16, 4096)[:, :2]
        found = read_process(os.getpid(), address(tensor), limit=tensor.nbytes)
        assert found.untyped_storage().nbytes() == tensor.nbytes
        with pytest.raises(ChannelError, match="larger than any right output"):
            read_process(os.getpid(), address(tensor), limit=tensor.nbytes - 1)

    @pytest.mark.parametrize(
        "ref",
        [
            TensorRef("uint8", (1 << 20,), (1 << 14,), 4096),  # gaps that are read through
            TensorRef("uint8", (1 << 20,), (1 << 40,), 4096),  # more calls of the kernel than anyone waits for
            TensorRef("uint8", (1 << 10, 1 << 10), (1 << 40, 1 << 14), 4096),
        ],
    )
    def test_an_output_spread_over_more_memory_than_is_read_is_refused(self, ref: TensorRef) -> None:
        with pytest.raises(ChannelError, match="more memory than kforge reads"):
            read_process(os.getpid(), ref, limit=1 << 21)
