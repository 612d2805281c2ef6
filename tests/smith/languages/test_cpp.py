"""How the C++ kernels are written; tests/smith/test_programs.py runs such programs."""

from __future__ import annotations

import pytest

from kforge.smith.fusion.loops import nest
from kforge.smith.fusion.regions import partition
from kforge.smith.ir.graph import Builder, Graph
from kforge.smith.languages.cpp.writer import LARGE_BYTES, large_outputs


@pytest.mark.parametrize(
    ("dtype", "size", "is_large"),
    [
        ("float32", LARGE_BYTES // 4, True),
        ("float32", LARGE_BYTES // 4 - 1, False),
        ("bool", LARGE_BYTES, True),
        ("bool", LARGE_BYTES - 1, False),
        ("int32", LARGE_BYTES // 4, True),
        ("int64", LARGE_BYTES // 8, True),
        ("int64", LARGE_BYTES // 8 - 1, False),
    ],
)
def test_outputs_are_large_by_their_bytes(dtype: str, size: int, is_large: bool) -> None:
    b = Builder()
    result = b.map("abs", b.input("x", 0, (size,), dtype), dtype=dtype)
    graph = Graph(b.nodes, (result,))
    (region,) = partition(graph)
    assert [count for _, count in large_outputs(nest(region, graph), graph)] == [LARGE_BYTES] * is_large
