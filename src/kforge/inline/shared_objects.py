"""Finds the file from which a function of a loaded library came."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file_name", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("symbol", ctypes.c_void_p),
    )


def origin(function: Any) -> Path | None:
    """Return the file from which a ctypes function was loaded, according to the dynamic loader. None if that is
    unknown."""
    info = _DlInfo()
    found = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return Path(info.file_name.decode()).resolve() if found and info.file_name else None
