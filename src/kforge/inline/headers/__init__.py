"""The header that a source may include: `#include <kforge/math.h>`.

C++ on the host finds it by its compiler's include path. Other compilers have no such path, or their builds are cached
by the source alone, so that for them the header's text is put into the source. For WGSL it is translated (`wgsl.py`).
"""

from kforge.inline.headers.expansion import FOLDER, HEADER, expanded, included, read

__all__ = ["FOLDER", "HEADER", "expanded", "included", "read"]
