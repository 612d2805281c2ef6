"""Computes the number of thread groups of a launch from `threads` (in total) and `group_size`, in up to three
dimensions."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from kforge.inline.errors import LaunchError

Three = tuple[int, int, int]


@dataclass(frozen=True)
class Limits:
    """The largest launch that a device supports."""

    group: Three
    """Most threads of a group in each dimension."""
    group_threads: int
    """Most threads of a group in total."""
    groups: Three
    """Most groups in each dimension."""


def grid(name: str, threads: Any, size: Three, limits: Limits) -> Three:
    """Return the number of groups in each dimension, rounded up so that there are at least `threads` threads. Raises
    LaunchError."""
    total = three(name, "threads", threads, least=0)
    groups = (-(-total[0] // size[0]), -(-total[1] // size[1]), -(-total[2] // size[2]))
    if groups[0] > limits.groups[0] or groups[1] > limits.groups[1] or groups[2] > limits.groups[2]:
        raise LaunchError(
            f"{name}: a launch has at most {limits.groups} groups, but threads={threads!r} and group_size={size} "
            f"make {groups}; let the kernel loop over its elements, or use another dimension"
        )
    return groups


def group(name: str, group_size: Any, limits: Limits) -> Three:
    """Return the size of one thread group in three dimensions. Raises LaunchError if it exceeds the limits."""
    size = three(name, "group_size", group_size, least=1)
    if size[0] * size[1] * size[2] > limits.group_threads or any(map(operator.gt, size, limits.group)):
        raise LaunchError(
            f"{name}: a group has at most {limits.group_threads} threads, and {limits.group} in its dimensions, "
            f"got group_size={group_size!r}"
        )
    return size


def three(name: str, what: str, value: Any, least: int) -> Three:
    """Return one to three numbers as three numbers, with 1 for missing ones. Raises LaunchError if a number is below
    `least`."""
    try:
        given = [operator.index(one) for one in (value if isinstance(value, tuple | list) else (value,))]
    except TypeError:
        given = []
    if not 1 <= len(given) <= 3 or min(given) < least:
        kind = "numbers from 0 on" if least == 0 else "positive numbers"
        raise LaunchError(f"{name}: {what} must be one to three {kind}, got {value!r}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
