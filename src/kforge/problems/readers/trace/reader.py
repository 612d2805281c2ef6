"""Reads folders of definitions and workloads, in the layouts of FlashInfer-Trace and of SOL-ExecBench.

FlashInfer-Trace has `definitions/**/NAME.json` and `workloads/**/NAME.jsonl`. SOL-ExecBench has a folder for each
problem, with `definition.json`, `workload.jsonl` and usually `reference.py`; or a table, `*.jsonl`, with a definition
and its workloads on each line.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.problems.discovery import natural
from kforge.problems.readers.files import files_named, json_file, json_lines, text_of
from kforge.problems.readers.protocol import Entry, Variant
from kforge.problems.readers.trace.definition import decoded, notes, translated
from kforge.problems.readers.writing import entry_or_failure, workload_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

DEFINITION, WORKLOADS, REFERENCE = "definition.json", "workload.jsonl", "reference.py"
DEPTH = 3
"""How deep the folders of problems may lie."""


class FlashInferTraceReader:
    """Reads a folder in the layout of FlashInfer-Trace."""

    name = "flashinfer-trace"

    def recognizes(self, folder: Path) -> bool:
        return next((folder / "definitions").glob("**/*.json"), None) is not None

    def read(self, folder: Path) -> Iterator[Entry]:
        by_definition: dict[str, list[dict[str, Any]]] = {}
        for file in sorted((folder / "workloads").glob("**/*.jsonl"), key=natural):
            for line in json_lines(file):
                name = line.get("definition", file.stem)
                by_definition.setdefault(str(name), []).append(line.get("workload", line))
        inside = folder / "definitions"
        for file in sorted(inside.glob("**/*.json"), key=natural):
            name = file.relative_to(inside).with_suffix("").as_posix()

            def read(file: Path = file) -> tuple[dict[str, Any], list[Any]]:
                definition = json_file(file)
                return definition, by_definition.get(str(definition.get("name")), [])

            yield entry_or_failure(name, partial(_entry, name, read, folder, str(file)))


class SolExecBenchReader:
    """Reads a folder or table in the layout of SOL-ExecBench."""

    name = "sol-execbench"

    def recognizes(self, folder: Path) -> bool:
        if folder.is_dir() and _problem_folders(folder):
            return True
        return any(_is_table(file) for file in folder.glob("*.jsonl"))

    def read(self, folder: Path) -> Iterator[Entry]:
        for place in _problem_folders(folder):
            name = place.relative_to(folder).as_posix() if place != folder else place.name
            read = partial(_in_folder, place)
            yield entry_or_failure(name, partial(_entry, name, read, place, str(place / DEFINITION)))
        for table in sorted(folder.glob("*.jsonl"), key=natural):
            for number, row in enumerate(json_lines(table) if _is_table(table) else [], 1):
                name = f"{table.stem}/{row.get('name', number)}"
                yield entry_or_failure(name, partial(_entry, name, partial(_in_row, row), folder, str(table)))


def _problem_folders(folder: Path) -> list[Path]:
    found = (file.parent for file in files_named(folder, (DEFINITION,), DEPTH))
    return sorted((place for place in found if (place / WORKLOADS).is_file()), key=natural)


def _in_folder(place: Path) -> tuple[dict[str, Any], list[Any]]:
    definition = json_file(place / DEFINITION)
    if not definition.get("reference"):
        definition["reference"] = text_of(place / REFERENCE)
    return definition, list(json_lines(place / WORKLOADS))


def _in_row(row: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return row, []


def _is_table(file: Path) -> bool:
    """Return whether a file has a definition on its first line."""
    try:
        rows = json_lines(file)
    except ProblemError:
        return False
    return bool(rows) and {"axes", "inputs", "reference"} <= set(rows[0])


def _entry(name: str, read: Callable[[], tuple[dict[str, Any], list[Any]]], root: Path, origin: str) -> Entry:
    """Return the entry of a definition. Raises ProblemError if it cannot be used."""
    definition, workloads = read()
    definition = decoded(definition, origin)
    workloads = workloads or definition.get("workloads") or []
    if not isinstance(workloads, list) or not all(isinstance(each, dict) for each in workloads):
        raise ProblemError(f"{origin}: its workloads are not a list of objects")
    if not workloads:
        raise ProblemError(f"{origin}: has no workloads")
    return Entry(name=name, variants=tuple(_variants(definition, workloads, root, origin)), tags=_tags(definition))


def _variants(
    definition: dict[str, Any], workloads: Iterable[dict[str, Any]], root: Path, origin: str
) -> Iterator[Variant]:
    for index, workload in enumerate(workloads):
        axes = workload.get("axes")
        yield Variant(
            name=workload_name(index, axes if isinstance(axes, dict) else {}),
            make=partial(translated, definition, workload, root, origin),
            weight=_weight(workload),
            notes=notes(definition, workload),
        )


def _weight(workload: dict[str, Any]) -> float:
    """Return how often a workload is served: its field `weight`, an addition of kforge's to the format, or 1."""
    weight = workload.get("weight", 1)
    return float(weight) if isinstance(weight, int | float) and 0 < weight < float("inf") else 1.0


def _tags(definition: dict[str, Any]) -> frozenset[str]:
    tags = definition.get("tags")
    said = [definition.get("op_type"), *(tags if isinstance(tags, list) else [])]
    return frozenset(each for each in said if isinstance(each, str) and each)
