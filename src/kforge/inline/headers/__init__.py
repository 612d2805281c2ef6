"""The header that a source may include: `#include <kforge/math.h>`.

The C++ compiler of the host finds it by its include path. Other compilers have no include path, or their builds are
cached by the source alone. For them the header's text is inserted into the source. For WGSL it is translated
(`wgsl.py`).
"""

from kforge.inline.headers.expansion import FOLDER, HEADER, expanded, included, read

__all__ = ["FOLDER", "HEADER", "expanded", "included", "read"]
