"""`#include <kforge/math.h>` in a WGSL source: the functions are translated from the header that other languages
include."""

from __future__ import annotations

import re
from functools import cache

from kforge.inline.errors import CompileError
from kforge.inline.headers.expansion import HEADER, read

_INCLUDE = re.compile(r"^([ \t]*)#[ \t]*include\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_TYPES = {"float": "f32", "int": "i32", "bool": "bool"}
_DIRECTIVE = re.compile(r"^#.*\n", re.MULTILINE)
_FUNCTION = re.compile(r"^KFORGE_FUNCTION float KFORGE\((\w+)\)\(([^)]*)\)", re.MULTILINE)
_PARAMETER = re.compile(r"float (\w+)")
_DECLARATION = re.compile(r"^( +)(const )?(float|int|bool) (\w+) = ", re.MULTILINE)
_CALL = re.compile(r"KFORGE\((\w+)\)")


def expanded(source: str, name: str) -> str:
    """Return the source without its `#include <kforge/math.h>`, and with the functions at its end.

    WGSL allows a call before the function is declared, and so all lines keep their numbers. `name` is the source's name
    in messages. Raises CompileError for any other `#include`, because WGSL has none.
    """
    found = list(_INCLUDE.finditer(source))
    for one in found:
        if one[2].partition("//")[0].strip() not in (f"<{HEADER}>", f'"{HEADER}"'):
            line = source.count("\n", 0, one.start()) + 1
            raise CompileError(
                f"{name}:{line}:{len(one[1]) + 1}: error: there is no header {one[2]}; "
                f"WGSL has no #include, and kforge expands only #include <{HEADER}>"
            )
    return f"{_INCLUDE.sub('', source)}\n{functions()}" if found else source


@cache
def functions() -> str:
    """Return the functions in WGSL."""
    text = _DIRECTIVE.sub("", read("kforge/functions.h"))
    text = _FUNCTION.sub(_head, text)
    text = _DECLARATION.sub(_declared, text)
    return read("kforge/math.wgsl") + "\n" + _CALL.sub(r"kforge_\1", text)


def _head(found: re.Match[str]) -> str:
    parameters = _PARAMETER.sub(r"\1: f32", found[2])
    return f"fn kforge_{found[1]}({parameters}) -> f32"


def _declared(found: re.Match[str]) -> str:
    return f"{found[1]}{'let' if found[2] else 'var'} {found[4]}: {_TYPES[found[3]]} = "
