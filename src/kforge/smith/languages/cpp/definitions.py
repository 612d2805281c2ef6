"""C++ source of the helpers that kernels call: mathematical functions, matrix products, convolutions, and a request
for large memory pages.

The mathematical functions (exp, log, tanh, erf, …) are those of `kforge.inline`, which compilers vectorize.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.inline.headers import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGE_PAGES = """
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

// Asks the system for large pages (2 MiB), so that the first writes to new memory cause fewer page faults. This is only
// a hint; without madvise it does nothing. The range is rounded outwards to whole pages.
static inline void in_large_pages(void* memory, uintptr_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 1 << 21, at = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = at / page * page, end = (at + bytes + page - 1) / page * page;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}
"""


def _file(name: str) -> str:
    return "\n" + (Path(__file__).parent / f"{name}.h").read_text(encoding="utf-8")


MATHEMATICS = frozenset(
    {"larger", "smaller", "maximum", "minimum", "exp", "log", "expm1", "log1p", "tanh", "erf", "sigmoid"}
)
"""Functions of the header <kforge/math.h>."""
_INCLUDE = f"\n#include <{HEADER}>\n"
_FILES = ("matrices", "matrix_unit", "matrix_product", "tiny_product", "convolution", "direct_convolution")
_TEXTS = MappingProxyType({"large_pages": _LARGE_PAGES, **{name: _file(name) for name in _FILES}})
_NEEDS = MappingProxyType(
    {"matrix_unit": ("matrices",), "tiny_product": ("matrices",), "direct_convolution": ("matrices",)}
)


def texts(names: Iterable[str]) -> str:
    """Return the C++ definitions of the named functions, and of all functions that they call, each once."""
    wanted, found = set(), [name for name in names if name]
    while found:
        wanted.add(name := found.pop())
        found += _NEEDS.get(name, ())
    header = _INCLUDE if wanted & MATHEMATICS else ""
    return header + "".join(text for name, text in _TEXTS.items() if name in wanted)
