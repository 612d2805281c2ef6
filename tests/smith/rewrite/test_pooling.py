"""Averages over places before convolutions, as far as that is exact."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kforge.smith.ir.graph import Builder, Graph, Ref
from kforge.smith.rewrite import simplify


def call(b: Builder, function: str, shape: tuple[int, ...], *arguments: Any) -> str:
    given_ = [Ref(each) if isinstance(each, str) else each for each in arguments]
    return b.call(function.split(".")[1], function, (given_, {}), shape, "float32")


def convolution(
    places: tuple[int, ...], kernel: int, stride: int, padding: int, dilation: int = 1, extra: int = -1
) -> tuple[Builder, str]:
    """A transposed one where `extra` (its output padding) is given."""
    b, rank = Builder(), len(places)
    x, bias = b.input("x", 0, (2, 3, *places), "float32"), b.parameter("b", "b", (4,), "float32")
    window = [kernel] * rank
    options = [[each] * rank for each in (stride, padding, dilation)]
    reach = dilation * (kernel - 1)
    if extra < 0:
        w = b.parameter("w", "w", (4, 3, *window), "float32")
        out = tuple((size + 2 * padding - reach - 1) // stride + 1 for size in places)
        return b, call(b, f"aten.conv{rank}d.default", (2, 4, *out), x, w, bias, *options)
    w = b.parameter("w", "w", (3, 4, *window), "float32")
    out = tuple((size - 1) * stride - 2 * padding + reach + extra + 1 for size in places)
    function = f"aten.conv_transpose{rank}d.{'default' if rank == 1 else 'input'}"
    arguments = [*options[:2], [extra] * rank, 1, options[2]]
    return b, call(b, function, (2, 4, *out), x, w, bias, *arguments)


def functions(graph: Graph) -> list[str]:
    return [node.function for node in graph if node.kind == "call"]


PLACES = st.lists(st.integers(7, 10), min_size=1, max_size=3).map(tuple)


@given(places=PLACES, kernel=st.integers(1, 3), padding=st.integers(0, 2), dilation=st.integers(1, 2))
def test_the_sum_over_all_places_of_a_convolution(
    places: Any, kernel: int, padding: int, dilation: int, proof: Any
) -> None:
    assume(dilation * (kernel - 1) - padding <= 3)
    b, y = convolution(places, kernel, 1, padding, dilation)
    after = proof.holds("sum of places", b, b.reduce("sum", y, range(2, len(places) + 2)))
    assert not any("conv" in function for function in functions(after))


@given(
    places=PLACES, kernel=st.integers(1, 4), stride=st.integers(1, 3), padding=st.integers(0, 2),
    dilation=st.integers(1, 2), extra=st.integers(0, 2),
)  # fmt: skip
def test_the_sum_over_all_places_of_a_transposed_convolution(
    places: Any, kernel: int, stride: int, padding: int, dilation: int, extra: int, proof: Any
) -> None:
    assume(extra < max(stride, dilation))
    b, y = convolution(places, kernel, stride, padding, dilation, extra)
    assume(min(b.shape(y)) > 0)
    before = Graph(b.nodes, (b.reduce("sum", y, range(2, len(places) + 2)),))
    after, _ = simplify(before)
    proof.same_meaning(before, after, 0)
    if dilation * (kernel - 1) <= 3 and padding <= 1:
        proof.holds("sum of places", b, before.outputs[0])


@pytest.mark.parametrize(
    ("options", "axes"),
    [
        ((3, 2, 1), (2, 3)),  # strides leave places out
        ((3, 1, 0), (3,)),  # some places only
        ((5, 1, 0), (2, 3)),  # all places are borders
    ],
)
def test_sums_over_places_that_stay(options: Any, axes: Any, proof: Any) -> None:
    b, y = convolution((8, 7), *options)
    proof.stays("sum of places", b, b.reduce("sum", y, axes))


def test_a_convolution_that_is_needed_stays(proof: Any) -> None:
    b, y = convolution((8, 7), 3, 1, 1)
    proof.stays("sum of places", b, b.reduce("sum", y, (2, 3)), y)
    b, y = convolution((8, 7), 3, 1, 1)
    proof.stays("sum of places", b, b.reduce("max", y, (2, 3)))


@given(places=PLACES, adaptive=st.booleans())
def test_global_pooling_is_a_mean(places: Any, adaptive: bool, proof: Any) -> None:
    b, rank = Builder(), len(places)
    x = b.input("x", 0, (2, 3, *places), "float32")
    name, size = ("adaptive_avg_pool", [1] * rank) if adaptive else ("avg_pool", list(places))
    pooled = call(b, f"aten.{name}{rank}d.default", (2, 3, *([1] * rank)), x, size)
    assert functions(proof.holds("global pooling", b, pooled)) == []


def test_pooling_that_is_no_mean_of_all_places(proof: Any) -> None:
    for size, window, more in (
        ((2, 3, 1, 1), [4, 4], []),
        ((2, 3, 2, 2), [3, 3], []),
        ((2, 3, 1, 1), [7, 7], [[7, 7], [1, 1]]),
    ):
        b = Builder()
        x = b.input("x", 0, (2, 3, 6, 6), "float32")
        proof.stays("global pooling", b, call(b, "aten.avg_pool2d.default", size, x, window, *more))
    b = Builder()
    x = b.input("x", 0, (2, 3, 6, 6), "float32")
    proof.stays("global pooling", b, call(b, "aten.adaptive_avg_pool2d.default", (2, 3, 1, 2), x, [1, 2]))


@given(window=st.integers(2, 3), stride=st.integers(1, 3), places=st.tuples(st.integers(5, 9), st.integers(5, 9)))
def test_pooling_comes_before_a_1x1_convolution(window: int, stride: int, places: Any, proof: Any) -> None:
    b, y = convolution(places, 1, 1, 0)
    out = tuple((size - window) // stride + 1 for size in places)
    pooled = call(b, "aten.avg_pool2d.default", (2, 4, *out), y, [window] * 2, [stride] * 2)
    after = proof.holds("pooling before a convolution", b, pooled)
    assert functions(after) == ["aten.avg_pool2d.default", "aten.conv2d.default"]
    b, y = convolution(places, 1, 1, 0)
    proof.holds("pooling before a convolution", b, call(b, "aten.adaptive_avg_pool2d.default", (2, 4, 3, 2), y, [3, 2]))


def test_pooling_stays_behind_other_convolutions_and_with_padding(proof: Any) -> None:
    rule = "pooling before a convolution"
    b, y = convolution((6, 6), 3, 1, 1)
    proof.stays(rule, b, call(b, "aten.avg_pool2d.default", (2, 4, 3, 3), y, [2, 2]))
    b, y = convolution((6, 6), 1, 1, 0)  # the bias would be averaged with zeros
    proof.stays(rule, b, call(b, "aten.avg_pool2d.default", (2, 4, 4, 4), y, [2, 2], [2, 2], [1, 1]))
    b, y = convolution((6, 6), 1, 1, 0)
    proof.stays(rule, b, call(b, "aten.max_pool2d.default", (2, 4, 3, 3), y, [2, 2]))
    b, y = convolution((6, 6), 1, 1, 0)
    proof.stays(rule, b, call(b, "aten.avg_pool2d.default", (2, 4, 3, 3), y, [2, 2]), y)


def pool_of_copies(
    kind: str, places: tuple[int, ...], times: int, window: int, stride: int, padding: int = 0
) -> tuple[Builder, str]:
    b, rank = Builder(), len(places)
    x = b.input("x", 0, (2, 3, *places), "float32")
    large = tuple(size * times for size in places)
    copied = call(b, f"aten.upsample_nearest{rank}d.vec", (2, 3, *large), x, None, [float(times)] * rank)
    out = tuple((size + 2 * padding - window) // stride + 1 for size in large)
    options = [[each] * rank for each in (window, stride, padding)]
    return b, call(b, f"aten.{kind}_pool{rank}d.default", (2, 3, *out), copied, *options)


@given(
    kind=st.sampled_from(["max", "avg"]), places=PLACES, times=st.sampled_from([2, 4]), window=st.integers(1, 3),
    stride=st.integers(1, 3),
)  # fmt: skip
def test_pooling_of_copies_is_pooling_of_fewer(
    kind: str, places: Any, times: int, window: int, stride: int, proof: Any
) -> None:
    b, y = pool_of_copies(kind, places, times, window * times, stride * times)
    after = proof.holds("pooling of copies", b, b.map("neg", y))
    assert len(functions(after)) == (0 if window == stride == 1 else 1)


@pytest.mark.parametrize("options", [(2, 3, 2), (2, 2, 3), (2, 2, 2, 1), (3, 3, 3)])
def test_windows_across_groups_of_copies_stay(options: Any, proof: Any) -> None:
    b, y = pool_of_copies("avg", (8, 8), *options)
    proof.stays("pooling of copies", b, y)
