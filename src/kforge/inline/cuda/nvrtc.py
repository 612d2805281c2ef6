"""Compiles one source with NVRTC in a process of its own, so that a compiler that hangs or crashes harms no other
process.

It imports only the standard library, so that the process starts in a few hundredths of a second. It reads
`request.json` in its working folder, and writes `kernel.cubin`, `names.json` and NVRTC's messages (`nvrtc.log`).
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

SOURCE, REQUEST, CUBIN, NAMES, LOG = "kernel.cu", "request.json", "kernel.cubin", "names.json", "nvrtc.log"
FAILED, UNUSABLE = 1, 3
"""Exit statuses of this process: the source does not compile, or NVRTC itself does not work."""

_SOURCE_FAULTS = frozenset({5, 6, 9})
"""NVRTC's error codes for an invalid option, a compilation error and an invalid name expression. All other errors are
not the fault of the source."""


def main() -> int:
    """Compile as `request.json` says, and return the exit status."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    try:
        if request["builtins"] is not None:
            ctypes.CDLL(request["builtins"])
        library = ctypes.CDLL(request["library"])
    except OSError as error:
        return _say(f"NVRTC does not load: {error}", UNUSABLE)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    names = [name.encode() for name in request["names"]]
    options = [option.encode() for option in request["options"]]
    program, status = _compile(library, names, [*options, request["report"].encode()])
    if status:
        # The assembler does not print its errors if a report is requested, so compile again without one.
        program, status = _compile(library, names, options)
    if program:
        _say(_bytes(library, program, "ProgramLog").decode(errors="replace"))
    if status:
        said = library.nvrtcGetErrorString(status).decode()
        return _say(said, FAILED if status in _SOURCE_FAULTS else UNUSABLE)
    lowered = {}
    for name in names:
        text = ctypes.c_char_p()
        if library.nvrtcGetLoweredName(program, name, ctypes.byref(text)):
            return _say(f"NVRTC has no symbol for {name.decode()}", FAILED)
        lowered[name.decode()] = (text.value or b"").decode()
    Path(CUBIN).write_bytes(_bytes(library, program, "CUBIN", text=False))
    Path(NAMES).write_text(json.dumps(lowered), encoding="utf-8")
    return 0


def _compile(library: Any, names: list[bytes], options: list[bytes]) -> tuple[ctypes.c_void_p, int]:
    """Return the compiled program and NVRTC's status code."""
    program = ctypes.c_void_p()
    source = Path(SOURCE).read_bytes()
    status: int = library.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE.encode(), 0, None, None)
    for name in names:
        status = status or library.nvrtcAddNameExpression(program, name)
    if not status:
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    return program, status


def _bytes(library: Any, program: ctypes.c_void_p, what: str, *, text: bool = True) -> bytes:
    size = ctypes.c_size_t()
    library[f"nvrtcGet{what}Size"](program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    library[f"nvrtcGet{what}"](program, buffer)
    return buffer.value if text else buffer.raw


def _say(text: str, status: int = 0) -> int:
    with Path(LOG).open("a", encoding="utf-8") as log:
        log.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
