"""Reads a checkout of robust-kbench: `tasks/**/func_forward.py` with a `config_forward.json` beside it.

The file defines `Model` and `get_inputs(**settings)`; the settings of both are in the JSON file. `single_*_configs` are
the timed settings. Every other combination of `multi_*_configs` is a held-out workload. Problems of backward passes
alone are left out.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.problems.discovery import natural
from kforge.problems.readers.files import files_named, json_file
from kforge.problems.readers.protocol import HELD_OUT, TIMED, Entry, Variant
from kforge.problems.readers.writing import entry_or_failure, literal, problem, workload_name
from kforge.problems.source import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.records import Problem

FORWARD, BACKWARD, CONFIG = "func_forward.py", "func_backward.py", "config_forward.json"
DEPTH = 2
"""How deep the folders of tasks may lie, below `tasks` of a checkout or below the folder itself."""
MOST_SETTINGS = 4096
"""Most combinations of settings of a problem."""
NO_FORWARD = "problems of a backward pass alone are not read"
PARTS = ("init", "input", "shared")
SETTINGS = '''

def get_inputs(_with_settings=get_inputs):
    """Return the inputs of this workload."""
    return list(_with_settings(**{inputs}))


def get_init_inputs():
    """Return the settings of the module by keyword."""
    return {init}
'''


class RobustKbenchReader:
    """Reads the forward problems of robust-kbench."""

    name = "robust-kbench"

    def recognizes(self, folder: Path) -> bool:
        return any((task / CONFIG).is_file() for task in _tasks(folder))

    def read(self, folder: Path) -> Iterator[Entry]:
        for task in _tasks(folder):
            name = task.relative_to(folder).as_posix().removeprefix("tasks/") if task != folder else task.name
            if not (task / FORWARD).is_file():
                yield Entry(name=name, variants=(), refused=NO_FORWARD)
                continue
            yield entry_or_failure(name, partial(_entry, name, task))


def _tasks(folder: Path) -> list[Path]:
    found = {
        file.parent for place in (folder / "tasks", folder) for file in files_named(place, (FORWARD, BACKWARD), DEPTH)
    }
    return sorted(found, key=natural)


def _entry(name: str, task: Path) -> Entry:
    return Entry(name=name, variants=tuple(_variants(name, task)))


def _variants(name: str, task: Path) -> Iterator[Variant]:
    """Yield the timed settings, and then those of the sweeps that are not among them. Raises ProblemError."""
    config = json_file(task / CONFIG)
    timed = _combinations(config, "single", task)
    swept = _combinations(config, "multi", task) if any(f"multi_{part}_configs" in config for part in PARTS) else []
    for index, (init, inputs) in enumerate([*timed, *(each for each in swept if each not in timed)]):
        group = TIMED if index < len(timed) else HELD_OUT
        make = partial(_problem, name, task, init, inputs)
        yield Variant(name=workload_name(index, init | inputs), make=make, group=group)


def _combinations(config: dict[str, Any], kind: str, task: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the settings of the module and of its inputs, in all combinations. Shared settings take precedence.
    Raises ProblemError if the file holds something else."""
    parts = [config.get(f"{kind}_{part}_configs") or config.get(f"single_{part}_configs") or [{}] for part in PARTS]
    if not all(isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in parts):
        raise ProblemError(f"{task / CONFIG}: {kind}_*_configs must be lists of objects")
    if (count := math.prod(map(len, parts))) > MOST_SETTINGS:
        raise ProblemError(f"{task / CONFIG}: {kind}_*_configs have {count} combinations, more than {MOST_SETTINGS}")
    return [(init | shared, inputs | shared) for init, inputs, shared in product(*parts)]


def _problem(name: str, task: Path, init: dict[str, Any], inputs: dict[str, Any]) -> Problem:
    tail = SETTINGS.format(init=literal(init), inputs=literal(inputs))
    return problem(name, read_source(task / FORWARD) + tail, str(task / FORWARD))
