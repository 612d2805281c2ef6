"""Frames: what is written is read back, and nothing else gets through."""

import contextlib
import math
import struct
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ChannelError
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.wire import HEADER, DtypeName, TensorRef, WireMessage, decode

sizes = st.integers(0, 2**40)


@st.composite
def tensor_refs(draw: st.DrawFn) -> TensorRef:
    dimensions = draw(st.integers(0, wire.MAX_DIMENSIONS))
    numbers = st.lists(sizes, min_size=dimensions, max_size=dimensions)
    return TensorRef(
        draw(st.sampled_from(wire.DTYPES)), tuple(draw(numbers)), tuple(draw(numbers)), draw(st.integers(-1, 2**60))
    )


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(max_size=20)
    | tensor_refs()
    | st.sampled_from(wire.DTYPES).map(DtypeName)
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1), inner, max_size=4)
    ),
    max_leaves=20,
)


def read_back(message: WireMessage) -> WireMessage:
    frame = message.encode()
    magic, kind, length = HEADER.unpack(frame[: HEADER.size])
    assert magic == wire.MAGIC
    assert length == len(frame) - HEADER.size
    return decode(kind, frame[HEADER.size :])


@given(trees, st.integers(0, 2**62))
def test_a_message_is_read_back_as_it_was(tree: object, number: int) -> None:
    message = wire.Call(tree, number)
    assert read_back(message) == message


@given(trees)
def test_types_survive(tree: object) -> None:
    """1, 1.0 and True are equal in Python, and must not become each other."""
    assert repr(read_back(wire.Result(tree, [])).value) == repr(tree)  # type: ignore[attr-defined]


def test_nan_crosses() -> None:
    assert math.isnan(read_back(wire.Result(float("nan"), [])).value)  # type: ignore[attr-defined]


Point = namedtuple("Point", "x y")
Renamed = namedtuple("Renamed", "x def", rename=True)
Foreign = type("no identifier", (Point,), {})


def test_a_named_tuple_crosses_with_its_names() -> None:
    seen: list[tuple[object, ...]] = []

    def rebuild(name: str, fields: tuple[str, ...], values: tuple[object, ...]) -> object:
        seen.append((name, fields))
        return Point(*values)

    sent = [Point(1, (2, Point(3, 4))), {"r": Renamed(5, 6)}]
    message = wire.Call(sent, 0)
    frame = message.encode()
    back = decode(message.kind, frame[HEADER.size :], rebuild).arguments  # type: ignore[attr-defined]
    assert back[0].y[1].y == 4
    assert seen == [("Point", ("x", "y")), ("Point", ("x", "y")), ("Renamed", ("x", "_1"))]


@pytest.mark.parametrize("value", [Point(1, 2), Renamed(1, 2), Foreign(1, 2), (1, 2)])
def test_a_named_tuple_is_a_plain_one_where_the_sender_is_not_trusted(value: object) -> None:
    assert type(read_back(wire.Result(value, [])).value) is tuple  # type: ignore[attr-defined]


@given(st.integers(0, 255), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_channel_error(kind: int, payload: bytes) -> None:
    try:
        message = decode(kind, payload)
    except ChannelError:
        return
    assert isinstance(message, WireMessage)


@given(trees, st.data())
def test_a_damaged_frame_is_a_message_or_a_channel_error(tree: object, data: st.DataObject) -> None:
    payload = bytearray(wire.Result(tree, []).encode()[HEADER.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ChannelError):
        decode(wire.Result.kind, bytes(payload))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "ends before"),
        (b"(" + struct.pack("!I", 2**31), "more items"),
        (b"S" + struct.pack("!I", 2**31), "ends before"),
        (b"T\x63\x00", "dtype code"),
        (b"T\x00\xff", "255 dimensions"),
        (b"?", "unknown tag"),
        (b"S\x00\x00\x00\x01\xff", "not UTF-8"),
        (b"<\x00\x00\x00\x01[\x00\x00\x00\x00N", "neither text nor an integer"),
        (b"=\x00\x00\x00\x01" + 2 * b"\x00\x00\x00\x02a(", "no identifier"),
        (b"=\x00\x00\x00\x01" + 2 * b"\x00\x00\x00\x02is", "no identifier"),
        (b"=\x7f\x00\x00\x01", "more items"),
        (b"NNNN" + b"extra", "more than its message"),
        (b"(\x00\x00\x00\x01" * 40 + b"N", "nested too deeply"),
    ],
)
def test_hostile_payloads_are_refused_by_name(payload: bytes, message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        decode(wire.Result.kind, payload)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ChannelError, match="unknown kind"):
        decode(250, b"")


@pytest.mark.parametrize("value", [object(), 2**70, {1.5: 2}, {2**63: 2}, {True: 2}, b"bytes"])
def test_a_value_outside_the_format_cannot_be_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        wire.Result(value, []).encode()
