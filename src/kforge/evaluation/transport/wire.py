"""The format of messages between processes: typed binary frames without pickle, with limits on every size.

A frame is `kfg1 | kind u8 | length u32 | payload`. A payload is the fields of one message in order, each written by the
codec of its declared type. Decoding returns a message of a known type or raises `ChannelError`. It never allocates more
than the frame's own length, and runs no code that the sender chose.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from kforge.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"kfg1"
HEADER = struct.Struct("!4sBI")
MAX_DEPTH = 16
"""Most levels of nested values in a message."""
MAX_NODES = 100_000
"""Most values in a message."""
MAX_DIMENSIONS = 16

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool",
    "uint8", "int8", "int16", "int32", "int64",
)  # fmt: skip
"""Names of the torch dtypes that a message may contain. A frame holds the index in this list."""


@dataclass(frozen=True)
class TensorRef:
    """Describes a tensor without its values: dtype, shape, strides, and its offset in a shared region or its address.

    The offset is -1 if the values were not sent.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class DtypeName:
    """A torch dtype that is itself an argument of a call."""

    name: str


Tree = Any
"""A value that a message may contain: None, bool, int, float, complex, str, TensorRef, DtypeName; a tuple or list of
values; a dict of values by text or by integers."""


class Writer:
    """Encodes the values of one payload into `parts`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def pack(self, form: str, *values: Any) -> None:
        self.parts.append(struct.pack("!" + form, *values))

    def text(self, value: str) -> None:
        data = value.encode("utf-8", "replace")
        self.pack("I", len(data))
        self.parts.append(data)

    def tree(self, value: Tree) -> None:  # noqa: C901 - one branch per type of the format
        match value:
            case None:
                self.pack("c", b"N")
            case bool():
                self.pack("c?", b"B", value)
            case int() if -(2**63) <= value < 2**63:
                self.pack("cq", b"I", value)
            case float():
                self.pack("cd", b"F", value)
            case complex():
                self.pack("cdd", b"C", value.real, value.imag)
            case str():
                self.pack("c", b"S")
                self.text(value)
            case DtypeName():
                self.pack("cB", b"Y", _dtype_code(value.name))
            case TensorRef():
                self.pack("cBB", b"T", _dtype_code(value.dtype), len(value.shape))
                self.pack(f"{2 * len(value.shape)}q", *value.shape, *value.strides)
                self.pack("q", value.offset)
            case tuple() | list():
                self.pack("cI", b"(" if isinstance(value, tuple) else b"[", len(value))
                self.items(value)
            case dict() if all(isinstance(key, str) for key in value):
                self.pack("cI", b"{", len(value))
                for key, item in value.items():
                    self.text(key)
                    self.tree(item)
            case dict() if all(type(key) is int and -(2**63) <= key < 2**63 for key in value):
                self.pack("cI", b"<", len(value))
                for key, item in value.items():
                    self.pack("q", key)
                    self.tree(item)
            case _:
                raise TypeError(f"a {type(value).__name__} cannot be sent to a worker")

    def items(self, values: tuple[Tree, ...] | list[Tree]) -> None:
        for kind, group in itertools.groupby(values, type):
            if kind is int:  # many addresses are written inside a timed block: all at once
                numbers = list(group)
                if min(numbers) < -(2**63) or max(numbers) >= 2**63:
                    raise TypeError("an int of more than 64 bits cannot be sent to a worker")
                marked = itertools.chain.from_iterable((b"I", number) for number in numbers)
                self.pack("cq" * len(numbers), *marked)
            else:
                for value in group:
                    self.tree(value)


def _dtype_code(name: str) -> int:
    try:
        return DTYPES.index(name)
    except ValueError:
        raise TypeError(f"tensors of dtype {name} cannot be sent to a worker") from None


class Reader:
    """Decodes the values of one payload. Every read checks the bounds, and raises ChannelError."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0
        self.nodes = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.payload):
            raise ChannelError("frame ends before its content does")
        data = self.payload[self.position : end]
        self.position = end
        return data

    def unpack(self, form: str) -> tuple[Any, ...]:
        layout = struct.Struct("!" + form)
        return layout.unpack(self.take(layout.size))

    def text(self) -> str:
        (length,) = self.unpack("I")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise ChannelError("text in a frame is not UTF-8") from None

    def tree(self, depth: int = 0) -> Tree:  # noqa: C901 - one branch per type of the format
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ChannelError("value in a frame is nested too deeply or has too many parts")
        (tag,) = self.unpack("c")
        match tag:
            case b"N":
                return None
            case b"B":
                return self.unpack("?")[0]
            case b"I":
                return self.unpack("q")[0]
            case b"F":
                return self.unpack("d")[0]
            case b"C":
                return complex(*self.unpack("dd"))
            case b"S":
                return self.text()
            case b"Y":
                return DtypeName(self._dtype())
            case b"T":
                return self._tensor()
            case b"(":
                return tuple(self.tree(depth + 1) for _ in range(self._count()))
            case b"[":
                return [self.tree(depth + 1) for _ in range(self._count())]
            case b"{":
                return {self.text(): self.tree(depth + 1) for _ in range(self._count())}
            case b"<":
                return {self.unpack("q")[0]: self.tree(depth + 1) for _ in range(self._count())}
        raise ChannelError(f"unknown tag {tag!r} in a frame")

    def _count(self) -> int:
        count: int = self.unpack("I")[0]
        if count > len(self.payload) - self.position:  # every item takes at least one byte
            raise ChannelError("frame announces more items than it holds")
        return count

    def _dtype(self) -> str:
        (code,) = self.unpack("B")
        if code >= len(DTYPES):
            raise ChannelError(f"unknown dtype code {code} in a frame")
        return DTYPES[code]

    def _tensor(self) -> TensorRef:
        dtype = self._dtype()
        (dimensions,) = self.unpack("B")
        if dimensions > MAX_DIMENSIONS:
            raise ChannelError(f"tensor with {dimensions} dimensions in a frame")
        numbers = self.unpack(f"{2 * dimensions}q")
        (offset,) = self.unpack("q")
        return TensorRef(dtype, numbers[:dimensions], numbers[dimensions:], offset)


_WRITE: dict[Any, Callable[[Writer, Any], None]] = {
    str: Writer.text,
    int: lambda writer, value: writer.pack("q", value),
    bool: lambda writer, value: writer.pack("?", value),
    float: lambda writer, value: writer.pack("d", value),
    Any: Writer.tree,
}
_READ: dict[Any, Callable[[Reader], Any]] = {
    str: Reader.text,
    int: lambda reader: reader.unpack("q")[0],
    bool: lambda reader: reader.unpack("?")[0],
    float: lambda reader: reader.unpack("d")[0],
    Any: Reader.tree,
}


@dataclass(frozen=True)
class WireMessage:
    """Base class of all messages. `kind` is the number that identifies a subclass in a frame."""

    kind: ClassVar[int]
    kinds: ClassVar[dict[int, type[WireMessage]]] = {}

    def __init_subclass__(cls, kind: int) -> None:
        cls.kind = kind
        WireMessage.kinds[kind] = cls

    def encode(self) -> bytes:
        """Return the whole frame. Raises TypeError for a value that the format does not have."""
        writer = Writer()
        for name, hint in _layout(type(self)):
            _WRITE[hint](writer, getattr(self, name))
        payload = b"".join(writer.parts)
        return HEADER.pack(MAGIC, self.kind, len(payload)) + payload


_LAYOUTS: dict[int, tuple[tuple[str, Any], ...]] = {}


def _layout(cls: type[WireMessage]) -> tuple[tuple[str, Any], ...]:
    if cls.kind not in _LAYOUTS:
        hints = get_type_hints(cls)
        _LAYOUTS[cls.kind] = tuple((field.name, hints[field.name]) for field in dataclasses.fields(cls))
    return _LAYOUTS[cls.kind]


def decode(kind: int, payload: bytes) -> WireMessage:
    """Return the message with this kind and payload. Raises ChannelError if they are malformed."""
    cls = WireMessage.kinds.get(kind)
    if cls is None:
        raise ChannelError(f"unknown kind of frame {kind}")
    reader = Reader(payload)
    try:
        values = [_READ[hint](reader) for _, hint in _layout(cls)]
    except (struct.error, OverflowError) as error:
        raise ChannelError(f"malformed frame: {error}") from None
    if reader.position != len(payload):
        raise ChannelError("frame holds more than its message")
    return cls(*values)


# --- referee to worker --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attach(WireMessage, kind=1):
    """Map a shared region: host memory by a file descriptor that comes with this message, device memory by `handle`."""

    region: str
    size: int
    handle: str


@dataclass(frozen=True)
class Begin(WireMessage, kind=11):
    """The first order: which platform to prepare, and the folder for builds of this program."""

    platform_folder: str
    build_cache: str
    precision: str
    flags: Tree = ()
    """Compiler flags that are added to every build of `kforge.inline`, for example for line numbers."""


@dataclass(frozen=True)
class Load(WireMessage, kind=2):
    """Import a program from its source. `entry` is the name of its module class."""

    source: str
    filename: str
    entry: str


@dataclass(frozen=True)
class Construct(WireMessage, kind=3):
    """Construct the program's module with these arguments, after setting the random seed."""

    seed: int
    arguments: Tree
    compile_mode: str
    """Mode of `torch.compile` for a compiled baseline; empty: do not compile."""
    hasty: bool = False
    """Whether `torch.compile` should assume what the host's compiler can do (`baselines.HASTE`)."""


@dataclass(frozen=True)
class SetState(WireMessage, kind=4):
    """Set weights and buffers of the module, by name."""

    state: Tree


@dataclass(frozen=True)
class Call(WireMessage, kind=5):
    """Make one call, and send its output. Before the call, `poison` bytes of memory are filled with NaN and freed."""

    arguments: Tree
    poison: int
    seed: Tree = None
    """Random seed that is set before the call; None if the reference draws no random numbers."""


@dataclass(frozen=True)
class Prepare(WireMessage, kind=6):
    """Prepare a timed block: the places of the inputs of its calls. Their values are written later."""

    sets: Tree
    flush: bool
    """Whether to flush the caches before the answer."""
    state: Tree = ()
    """Names of buffers and parameters that the reference updates. The answer to `Go` has their addresses."""
    keep: Tree = ()
    """Pairs of a slot and a call's number in the previous block, whose outputs the worker must keep in the slot."""


@dataclass(frozen=True)
class Go(WireMessage, kind=7):
    """Run the next `calls` calls of the prepared block now. This is the timed order."""

    calls: int
    seed: Tree = None
    """Random seed that is set before the calls; None if the reference draws no random numbers."""


@dataclass(frozen=True)
class Fetch(WireMessage, kind=8):
    """Send the output of call number `index` of the last block."""

    index: int


@dataclass(frozen=True)
class FetchState(WireMessage, kind=9):
    names: Tree


@dataclass(frozen=True)
class RecordProfile(WireMessage, kind=10):
    """Make `calls` calls under torch's profiler, and send the times of operators."""

    arguments: Tree
    calls: int


@dataclass(frozen=True)
class Sanitize(WireMessage, kind=20):
    """Tells a worker that it runs under a sanitizer: copy inputs to the heap, and build with these flags in
    `builds`."""

    builds: str
    flags: Tree
    variables: Tree
    """Names of environment variables to remove, so that compilers and other child processes do not inherit them."""


@dataclass(frozen=True)
class CountedCalls(WireMessage, kind=21):
    """Make `calls` calls that the surrounding profiler records, after some calls that it does not record."""

    arguments: Tree
    calls: int


@dataclass(frozen=True)
class Plant(WireMessage, kind=22):
    """Commit an error on purpose. If the sanitizer does not report it, its silence about the program proves nothing."""

    error: str


@dataclass(frozen=True)
class Watch(WireMessage, kind=23):
    """Run the prepared block under torch's profiler, and report which kernels the device ran."""


@dataclass(frozen=True)
class Explain(WireMessage, kind=24):
    """Say to which lines of the program's sources these samples belong."""

    positions: Tree
    """A list of (file, bytes from where the file is mapped first, number of samples)."""


# --- worker to referee --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready(WireMessage, kind=64):
    """The last order was carried out."""


@dataclass(frozen=True)
class Attached(WireMessage, kind=71):
    """The address at which the worker has mapped a region. The referee does not rely on it being true."""

    address: int


@dataclass(frozen=True)
class Constructed(WireMessage, kind=65):
    """Names, dtypes and shapes of the program's state."""

    state: Tree


@dataclass(frozen=True)
class Result(WireMessage, kind=66):
    """The output of one call: in the region for outputs, or on a device as addresses in the worker's memory."""

    value: Tree
    aliases: Tree
    """Pairs of an output and the input in whose memory it lies (`aliases.Aliases`)."""
    memory: Tree = ()
    """On a device: the allocations that contain the output (`worker.allocations`)."""


@dataclass(frozen=True)
class Done(WireMessage, kind=67):
    """The block ran. `nanoseconds` is what the worker's own clock says, which may be a lie."""

    nanoseconds: int
    outputs: Tree
    """Addresses of the outputs of the calls (`shared_memory.addresses`)."""
    memory: Tree
    """On a device: the allocations that contain the outputs (`worker.allocations`)."""
    state: Tree = None
    """Addresses of the buffers and parameters that `Prepare` named."""
    around: int = 0
    """Nanoseconds of the worker's own code before and after the calls of the previous `Go`; may be a lie, too."""


@dataclass(frozen=True)
class Profiled(WireMessage, kind=68):
    rows: Tree
    """A list of (name, calls, seconds)."""
    timeline: Tree = None
    """A list of (name, nanoseconds after the first one began, seconds)."""


@dataclass(frozen=True)
class Explained(WireMessage, kind=72):
    """Where samples lie, as the JSON of an `AuthoredCode`; may be a lie."""

    document: str


@dataclass(frozen=True)
class Watched(WireMessage, kind=70):
    """The block ran under torch's profiler. All fields may be lies."""

    kernels: Tree
    """A list of (name, launches, seconds)."""
    busy: float
    """Seconds in which at least one kernel ran."""
    outputs: Tree
    """Addresses of the outputs of the calls."""
    memory: Tree
    """On a device: the allocations that contain the outputs (`worker.allocations`)."""


@dataclass(frozen=True)
class Failed(WireMessage, kind=69):
    """The program raised an exception, or could not be built."""

    category: str
    """`compile`, `raised` or `foreign_output` (the output is a subclass of Tensor)."""
    reason: str
    log: str


# --- judge and referee: both trusted, the documents are JSON -------------------------------------------------


@dataclass(frozen=True)
class Document(WireMessage, kind=128):
    """One JSON document between orchestrator and referee: a request, a progress message, an answer or an error."""

    topic: str
    body: str
