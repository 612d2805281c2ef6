"""Reads the headers of `.safetensors` files, and writes code that loads one tensor of them. No package is needed.

Such a file is eight bytes with the length of a JSON header, the header (dtype, shape and place of each tensor), and the
bytes of the tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from kforge import reading
from kforge.errors import ProblemError
from kforge.problems.readers.files import inside

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

LONGEST_HEADER = 64 * 2**20
"""Most bytes of a header. The format itself allows 100 MB."""
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
"""torch's names for the dtypes of the format."""
PIECE = 2**20
"""Bytes that are hashed at a time."""
LOADER = '''\
_LOADED = {}


def _tensor(path, offset, size, digest, dtype, shape):
    """Return a tensor of a file, which must be as it was when the problem was read."""
    if (path, offset) not in _LOADED:
        with open(path, "rb") as file:
            file.seek(offset)
            held = bytearray(file.read(size))
        if hashlib.sha256(held).hexdigest() != digest:
            raise ValueError(f"{path} was changed since the problem was read")
        _LOADED[path, offset] = torch.frombuffer(held, dtype=dtype).reshape(shape)
    return _LOADED[path, offset].clone().to(torch.get_default_device())
'''
"""Source of the function `_tensor`, for a problem that also imports hashlib and torch."""


class StoredTensor(NamedTuple):
    """One tensor of a file."""

    path: Path
    offset: int
    """Bytes before the tensor."""
    size: int
    """Bytes of the tensor."""
    digest: str
    """SHA-256 of these bytes."""
    dtype: str
    shape: tuple[int, ...]

    @property
    def code(self) -> str:
        """Source of the call of `_tensor` that loads the tensor."""
        place = f"{str(self.path)!r}, {self.offset}, {self.size}, {self.digest!r}"
        return f"_tensor({place}, torch.{self.dtype}, {self.shape!r})"


def find(root: Path, name: str, key: str) -> StoredTensor:
    """Return a tensor of a file in a suite's folder. Raises ProblemError if the file lacks that tensor, or lies outside
    the folder."""
    path = inside(root, root, name)
    try:
        with reading.regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > LONGEST_HEADER:
                raise ValueError("its header is too long")
            said = json.loads(file.read(length))[key]
            begin, end = (int(each) for each in said["data_offsets"])
            dtype, shape = DTYPES[said["dtype"]], tuple(int(each) for each in said["shape"])
            if not 0 <= begin < end:
                raise ValueError("a tensor in it has no bytes")
            if 8 + length + end > os.fstat(file.fileno()).st_size:
                raise ValueError("it ends too early")
            if end - begin != math.prod(shape) * _width(said["dtype"]):
                raise ValueError("a tensor in it has another size than its shape and dtype say")
            if end - begin > _memory():
                raise ValueError("a tensor in it is larger than this machine's memory")
            file.seek(8 + length + begin)
            return StoredTensor(path, 8 + length + begin, end - begin, _digest(file, end - begin), dtype, shape)
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {reading.reason(error)}") from None
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProblemError(f"{path}: has no tensor {key!r} that can be read: {error}") from None


def _width(dtype: str) -> int:
    """Return the size in bytes of one element of a dtype. The dtype's name in the format states the bits; a bool has
    one byte."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _digest(file: BufferedReader, size: int) -> str:
    """Return the SHA-256 of the next `size` bytes. Raises ValueError if the file ends before."""
    digest = hashlib.sha256()
    while size:
        piece = file.read(min(size, PIECE))
        if not piece:
            raise ValueError("it ends too early")
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest()
