"""A worker that lies: `python hostile_worker.py FD SEED` serves one life after another, each over a channel of its own.

Through the control socket FD it is handed one channel a life. It answers a few orders as an honest worker would, and
others as nobody should. It knows the format, the kinds that only trusted sides use, and every trick below.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

from kforge.evaluation.constants import MAX_FRAME
from kforge.evaluation.processes import fork_requests
from kforge.evaluation.transport import options, wire
from kforge.evaluation.transport.wire import HEADER, MAGIC, DtypeName, TensorRef, WireMessage

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = (
    -(2**63), -(2**62), -(2**31), -8, -2, -1, 0, 1, 2, 3, 4, 7, 8, 16, 64, 4096, 2**20, 2**31, 2**32, 2**40, 2**53,
    2**62, 2**63 - 64, 2**63 - 1,
)  # fmt: skip
FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.0, 1e-320, 1e308, 0.5)
TEXTS = (
    "", "raised", "compile", "foreign_output", "correct", "weight", "x\x00y", "\x1b[2J\x1b[31m", "a\nb\r\nc",
    "\u202egnp", "\ufeff", "\U0010ffff", "é" * 40, "{{ 7 * 7 }}", "%s%n", "../../etc/passwd", "9" * 5000,
)  # fmt: skip
BUFFER = ctypes.create_string_buffer(1 << 16)
"""Memory of ours that a reader of it would find."""
ORDERS = {cls.kind: cls for cls in WireMessage.kinds.values()}


class Liar:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.told = 0
        self.tricks: list[Callable[[bytes], bytes]] = [
            self.noise, self.framed_noise, self.flipped, self.flipped, self.wrong_kind, self.wrong_kind, self.cut,
            self.oversized, self.nested, self.huge_count, self.many_nodes, self.right_kind, self.right_kind,
            self.right_kind, self.right_kind, self.references, self.references, self.many_references, self.odd_text,
            self.twice, self.long_text, self.nan_bits, self.other_dtype,
        ]  # fmt: skip
        self.whole = (
            self.right_kind, self.references, self.many_references, self.many_nodes, self.nan_bits, self.other_dtype,
        )  # fmt: skip

    # --- values ----------------------------------------------------------------------------------------------

    def number(self) -> int:
        return self.chance.choice(NUMBERS) if self.chance.random() < 0.8 else self.chance.randrange(-(2**63), 2**63)

    def reference(self) -> TensorRef:
        one = self.chance
        kind = one.random()
        dtype = one.choice(wire.DTYPES) if one.random() < 0.5 else "float32"
        if kind < 0.2:  # a plausible one, in the region or in our memory
            place = one.choice((0, 64, ctypes.addressof(BUFFER), -1, 1))
            return TensorRef(dtype, (4, 4), one.choice(((4, 1), (1, 4), (0, 0), (2**40, 1))), place)
        if kind < 0.3:  # one element, seen over and over
            sizes = one.choice(((2**33,), (2**20, 2**20), (2**40, 2**40), (2**62, 4), (4, 4)))
            return TensorRef(dtype, sizes, (0,) * len(sizes), one.choice((0, -1, ctypes.addressof(BUFFER))))
        if kind < 0.4:  # nothing, of an impossible size
            return TensorRef(dtype, (0, 2**62, 2**62), (self.number(), 1, 1), one.choice((0, -1)))
        dimensions = one.choice((0, 1, 1, 2, 2, 3, 16))
        sizes, strides = (tuple(self.number() for _ in range(dimensions)) for _ in range(2))
        return TensorRef(dtype, sizes, strides, self.number())

    def tree(self, depth: int = 0) -> Any:
        one = self.chance
        match one.randrange(8 if depth > 2 else 11):
            case 0:
                return None
            case 1:
                return one.random() < 0.5
            case 2:
                return self.number()
            case 3:
                return one.choice(FLOATS)
            case 4:
                return complex(one.choice(FLOATS), one.choice(FLOATS))
            case 5:
                return one.choice(TEXTS)
            case 6:
                return DtypeName(one.choice(wire.DTYPES))
            case 7:
                return self.reference()
            case 8:
                return tuple(self.tree(depth + 1) for _ in range(one.randrange(4)))
            case 9:
                return [self.tree(depth + 1) for _ in range(one.randrange(4))]
        return {one.choice(TEXTS): self.tree(depth + 1) for _ in range(one.randrange(4))}

    def value(self, hint: Any) -> Any:
        choices = {
            str: lambda: self.chance.choice(TEXTS),
            int: self.number,
            bool: lambda: self.chance.random() < 0.5,
            float: lambda: self.chance.choice(FLOATS),
            Any: self.tree,
        }
        return choices[hint]()

    def message(self, cls: type[WireMessage]) -> bytes:
        return cls(*(self.value(hint) for _, hint in wire._layout(cls))).encode()

    # --- tricks: from the honest answer to what is sent instead ----------------------------------------------

    def noise(self, _: bytes) -> bytes:
        return self.chance.randbytes(self.chance.choice((1, 8, 9, 10, 100, 5000)))

    def framed_noise(self, honest: bytes) -> bytes:
        payload = self.chance.randbytes(self.chance.randrange(80))
        return HEADER.pack(MAGIC, self.chance.choice((honest[4], self.chance.randrange(256))), len(payload)) + payload

    def flipped(self, honest: bytes) -> bytes:
        frame = bytearray(honest)
        for _ in range(self.chance.randint(1, 4)):
            place = self.chance.randrange(len(frame))
            frame[place] ^= 1 << self.chance.randrange(8)
        return bytes(frame)

    def wrong_kind(self, _: bytes) -> bytes:
        return self.message(self.chance.choice(list(WireMessage.kinds.values())))

    def right_kind(self, honest: bytes) -> bytes:
        """The answer that was asked for, with values that nobody asked for."""
        return self.message(ORDERS[honest[4]])

    def cut(self, honest: bytes) -> bytes:
        return honest[: self.chance.randrange(len(honest))]

    def oversized(self, honest: bytes) -> bytes:
        length = self.chance.choice((MAX_FRAME + 1, 2**31, 2**32 - 1))
        return HEADER.pack(MAGIC, honest[4], length) + bytes(100)

    def nested(self, _: bytes) -> bytes:
        depth = self.chance.choice((wire.MAX_DEPTH, wire.MAX_DEPTH + 1, 1000))
        opening = self.chance.choice((b"(\x00\x00\x00\x01", b"[\x00\x00\x00\x01", b"{\x00\x00\x00\x01\x00\x00\x00\x00"))
        return self.result(opening * depth + b"N")

    def huge_count(self, _: bytes) -> bytes:
        tag, count = self.chance.choice((b"(", b"[", b"{", b"S")), self.chance.choice((2**32 - 1, 2**31, 1000))
        return self.result(tag + struct.pack("!I", count) + b"N" * 10)

    def many_nodes(self, _: bytes) -> bytes:
        count = wire.MAX_NODES + 1 if self.chance.random() < 0.02 else 50
        return self.result(b"[" + struct.pack("!I", count) + b"N" * count)

    def references(self, honest: bytes) -> bytes:
        return self.carrying(honest, self.reference())

    def other_dtype(self, honest: bytes) -> bytes:
        """Right but for this, and the shape at times."""
        sizes = self.chance.choice(((4, 4), (4, 4), (2, 8)))
        return self.carrying(honest, TensorRef(self.chance.choice(wire.DTYPES), sizes, (sizes[1], 1), 0))

    def many_references(self, honest: bytes) -> bytes:
        """A small frame that asks for much memory: the whole region, again and again."""
        one = TensorRef("uint8", (1 << 20,), (1,), self.chance.choice((0, ctypes.addressof(BUFFER))))
        many = [one] * (4000 if self.chance.random() < 0.05 else 20)
        return self.carrying(honest, many)

    def odd_text(self, _: bytes) -> bytes:
        data = self.chance.choice((b"\xed\xa0\x80", b"\xff\xfe", b"\xc0\x80", b"\xf4\x90\x80\x80", b"ok\xe2\x82"))
        payload = b"".join(struct.pack("!I", len(text)) + text for text in (b"raised", data, data))
        return HEADER.pack(MAGIC, wire.Failed.kind, len(payload)) + payload

    def long_text(self, _: bytes) -> bytes:
        text = self.chance.choice(TEXTS) + "x\n\x00" * self.chance.choice((10, 30_000))
        return wire.Failed(self.chance.choice(TEXTS), text, text).encode()

    def nan_bits(self, _: bytes) -> bytes:
        (bits,) = struct.unpack("!q", struct.pack("!d", float("nan")))
        return wire.Done(bits, [self.reference() for _ in range(2)], []).encode()

    def twice(self, honest: bytes) -> bytes:
        """More than was asked for: what is left over comes before the next order."""
        return honest + self.chance.choice((honest, self.message(wire.Failed), b"x", honest[:5]))

    def result(self, tree: bytes) -> bytes:
        empty = b"[\0\0\0\0"
        return HEADER.pack(MAGIC, wire.Result.kind, len(tree) + 3 * len(empty)) + tree + 3 * empty

    def carrying(self, honest: bytes, tree: Any) -> bytes:
        answers = {
            wire.Attached.kind: lambda: wire.Attached(self.number()),
            wire.Constructed.kind: lambda: wire.Constructed({"weight": tree}),
            wire.Done.kind: lambda: wire.Done(self.number(), [tree, self.chance.choice((tree, self.number()))], tree),
            wire.Profiled.kind: lambda: wire.Profiled(
                [("x", self.number(), 1.0)], self.chance.choice((tree, [("x", tree, 1.0)], [("x", self.number(), 1.0)]))
            ),
            wire.Watched.kind: lambda: wire.Watched(
                [(self.chance.choice(TEXTS), self.number(), self.chance.choice(FLOATS))],
                self.chance.choice(FLOATS),
                [tree, 0],
                tree,
            ),
            wire.Explained.kind: lambda: wire.Explained(
                self.chance.choice((*TEXTS, "{}", "[" * 70_000, '{"samples": 1e999, "share": 1}', EXPLANATION))
            ),
        }
        aliases = self.chance.choice(([], [(0, 0)], [(self.number(), self.number())], [(0,)], [0], True, tree))
        row = self.chance.choice((("x", "x", "x"), ("x" * 200, "", ""), ("x", 1, ""), ["x"], tree))
        settings = self.chance.choice(([], [], [row], [("x", "", "")] * 900, tree))
        return answers.get(honest[4], lambda: wire.Result(tree, aliases, settings=settings))().encode()


EXPLANATION = '{"samples": 2, "share": 0.5, "elsewhere": {"' + "x\\n" * 900 + '": 0.5}, "lines": [' + ", ".join(
    ['{"function": "' + "f" * 300 + '", "line": 1, "text": "\\u0000", "share": 0.5}'] * 99
) + "]}"  # fmt: skip
HONEST: dict[type[WireMessage], WireMessage] = {
    wire.Attach: wire.Attached(1 << 40),
    wire.Construct: wire.Constructed({"weight": TensorRef("float32", (4, 4), (4, 1), -1)}),
    wire.Call: wire.Result(TensorRef("float32", (4, 4), (4, 1), 0), []),
    wire.Fetch: wire.Result(TensorRef("float32", (4, 4), (4, 1), 0), []),
    wire.FetchState: wire.Result({"weight": TensorRef("float32", (4, 4), (4, 1), 0)}, []),
    wire.Go: wire.Done(1000, [TensorRef("float32", (4, 4), (4, 1), ctypes.addressof(BUFFER)), 0], []),
    wire.RecordProfile: wire.Profiled([("aten::add", 3, 1e-6)], [("aten::add", 0, 1e-6)]),
    wire.Explain: wire.Explained('{"samples": 1, "share": 0.5}'),
    wire.Watch: wire.Watched(
        [("own", 2, 1e-6)], 1e-6, [TensorRef("float32", (4, 4), (4, 1), ctypes.addressof(BUFFER)), 0], []
    ),
}
PATIENT = (wire.Begin, wire.Attach, wire.Load, wire.Construct, wire.RecordProfile, wire.Watch, wire.Explain)
"""Orders whose answers are waited for by the minute: after half an answer to one of them, we hang up."""


def orders(channel: socket.socket) -> Any:
    """The orders of one life, until the referee has had enough of it."""
    waiting = b""
    while True:
        while len(waiting) < HEADER.size:
            data, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 4)
            for descriptor in descriptors:
                os.close(descriptor)
            if not data:
                return
            waiting += data
        _, kind, length = HEADER.unpack(waiting[: HEADER.size])
        while len(waiting) < HEADER.size + length:
            waiting += channel.recv(1 << 16)
        waiting = waiting[HEADER.size + length :]
        yield ORDERS[kind]


def live(channel: socket.socket, liar: Liar, spare: int) -> None:
    for order in orders(channel):
        honest = HONEST.get(order, wire.Ready()).encode()
        early = order in (wire.Begin, wire.Attach, wire.Prepare, wire.Load, wire.SetState)
        if liar.chance.random() < (0.75 if early else 0.02):
            channel.sendall(honest)
            continue
        liar.told += 1
        trick = liar.chance.choice(liar.tricks)
        lie = trick(honest)
        if liar.chance.random() < 0.1:
            sent = socket.send_fds(channel, [lie or b"x"], [spare] * liar.chance.choice((1, 5, 200)))
            lie = lie[sent:]
        channel.sendall(lie)
        if trick in liar.whole and order not in PATIENT:
            continue  # it may be taken for an answer, and then the next order comes
        if order in PATIENT or liar.chance.random() < 0.95:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_WR)  # what is left of the life can only be an end
            if liar.chance.random() < 0.3:
                return
        else:
            time.sleep(0.03)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    liar = Liar(int(sys.argv[2]))
    assert {fork_requests.Spawn, options.RefereeSetup} <= set(WireMessage.kinds.values())
    spare = os.open(os.devnull, os.O_RDWR)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        with socket.socket(fileno=descriptors[0]) as channel, contextlib.suppress(OSError):
            live(channel, liar, spare)
        control.sendall(struct.pack("!I", liar.told))


if __name__ == "__main__":
    main()
