"""Computes how many groups of threads a launch has: `threads` in all, `group_size` in each, in up to three
dimensions."""

from __future__ import annotations

import operator
from typing import Any

from kforge.inline.errors import LaunchError

MAX_GROUP = (1024, 1024, 64)
MAX_GROUP_THREADS = 1024
MAX_GROUPS = (2**31 - 1, 65535, 65535)
Three = tuple[int, int, int]


def grid(name: str, threads: Any, group_size: Any) -> tuple[Three, Three]:
    """The number of groups and their size; the last group of a dimension may exceed `threads`. Raises LaunchError."""
    size = group(name, group_size)
    total = _three(name, "threads", threads, least=0)
    groups = (-(-total[0] // size[0]), -(-total[1] // size[1]), -(-total[2] // size[2]))
    if groups[0] > MAX_GROUPS[0] or groups[1] > MAX_GROUPS[1] or groups[2] > MAX_GROUPS[2]:
        raise LaunchError(f"{name}: at most {MAX_GROUPS} groups fit a launch, threads={threads!r} makes {groups}")
    return groups, size


def group(name: str, group_size: Any) -> Three:
    """Return the size of one group. Raises LaunchError."""
    size = _three(name, "group_size", group_size, least=1)
    if size[0] * size[1] * size[2] > MAX_GROUP_THREADS or size[2] > MAX_GROUP[2]:
        raise LaunchError(
            f"{name}: a group has at most {MAX_GROUP_THREADS} threads and {MAX_GROUP[2]} in the third dimension, "
            f"got group_size={group_size!r}"
        )
    return size


def _three(name: str, what: str, value: Any, least: int) -> Three:
    try:
        given = [operator.index(one) for one in (value if isinstance(value, tuple | list) else (value,))]
    except TypeError:
        given = []
    if not 1 <= len(given) <= 3 or min(given) < least:
        kind = "numbers from 0 on" if least == 0 else "positive numbers"
        raise LaunchError(f"{name}: {what} must be one to three {kind}, got {value!r}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
