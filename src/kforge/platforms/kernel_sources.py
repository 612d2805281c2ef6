"""Finds the kernel sources in a program's text, so that they can be built on a machine where the program cannot run."""

from __future__ import annotations

import ast


def kernel_sources(program: str, language: str) -> list[str]:
    """Return the source strings that a program passes to `inline.compile(source, language)`."""
    found = []
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="compile"),
                args=[ast.Constant(value=str(source)), ast.Constant(value=str(named)), *_],
            ) if named == language:
                found.append(source)
    return found
