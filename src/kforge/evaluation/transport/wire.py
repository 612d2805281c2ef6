"""The format of messages between processes: typed binary frames without pickle, with limits on every size.

A frame is `kfg1 | kind u8 | length u32 | payload`. A payload is the fields of one message in order, each written by the
codec of its declared type. Decoding returns a message of a known type or raises `ChannelError`. It never allocates more
than the frame's own length, and runs no code that the sender chose.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints

from kforge.errors import ChannelError
from kforge.evaluation.transport.codec import DTYPES as DTYPES
from kforge.evaluation.transport.codec import MAX_DEPTH as MAX_DEPTH
from kforge.evaluation.transport.codec import MAX_DIMENSIONS as MAX_DIMENSIONS
from kforge.evaluation.transport.codec import MAX_NODES as MAX_NODES
from kforge.evaluation.transport.codec import READ, WRITE, Reader, Rebuild, Writer
from kforge.evaluation.transport.codec import DtypeName as DtypeName
from kforge.evaluation.transport.codec import TensorRef as TensorRef
from kforge.evaluation.transport.codec import Tree as Tree

MAGIC = b"kfg1"
HEADER = struct.Struct("!4sBI")


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
            WRITE[hint](writer, getattr(self, name))
        payload = b"".join(writer.parts)
        return HEADER.pack(MAGIC, self.kind, len(payload)) + payload


_LAYOUTS: dict[int, tuple[tuple[str, Any], ...]] = {}


def _layout(cls: type[WireMessage]) -> tuple[tuple[str, Any], ...]:
    if cls.kind not in _LAYOUTS:
        hints = get_type_hints(cls)
        _LAYOUTS[cls.kind] = tuple((field.name, hints[field.name]) for field in dataclasses.fields(cls))
    return _LAYOUTS[cls.kind]


def decode(kind: int, payload: bytes, rebuild: Rebuild | None = None) -> WireMessage:
    """Return the message with this kind and payload. Raises ChannelError if they are malformed.

    `rebuild` makes the named tuples; without it they are plain tuples.
    """
    cls = WireMessage.kinds.get(kind)
    if cls is None:
        raise ChannelError(f"unknown kind of frame {kind}")
    reader = Reader(payload, rebuild)
    try:
        values = [READ[hint](reader) for _, hint in _layout(cls)]
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
    """Whether to flush the caches before the answer. False if the referee can do that itself."""
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
    """Send these entries of the module's state."""

    names: Tree


@dataclass(frozen=True)
class RecordProfile(WireMessage, kind=10):
    """Make `calls` calls under torch's profiler, and send the times of operators."""

    arguments: Tree
    calls: int


@dataclass(frozen=True)
class Sanitize(WireMessage, kind=20):
    """Prepare for the sanitizer under which the worker runs: copy inputs to the heap, and build with these flags in
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
    """The address at which the worker has mapped a region; may be a lie."""

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
    settings: Tree = ()
    """Settings of torch that the call has changed: triples of name, former and present value. May be a lie."""


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
    """The profile that `RecordProfile` asked for; may be a lie."""

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


# --- orchestrator and referee: both trusted, the documents are JSON ------------------------------------------


@dataclass(frozen=True)
class Document(WireMessage, kind=128):
    """One JSON document between orchestrator and referee: a request, a progress message, an answer or an error."""

    topic: str
    body: str
