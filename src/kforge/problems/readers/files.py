"""Finds and reads the data files of suites: JSON, JSON lines and YAML. Every defect is a ProblemError of one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import reading
from kforge.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

YAML_MISSING = "reading it needs PyYAML; install it with: pip install 'kforge[suites]'"
"""Message for a suite that needs PyYAML, if the extra `suites` is not installed."""

MOST_NODES = 100_000
"""Most values of a YAML file, where each alias counts as all values that it repeats."""


def inside(root: Path, place: Path, name: str) -> Path:
    """Return the path of a file that a suite names relative to its folder `place`. Raises ProblemError if the file lies
    outside the suite's folder `root`, symbolic links included."""
    try:
        path, whole = (place / name).resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, a circle of links, a zero byte
        raise ProblemError(f"{place}: {name[:200]!r} cannot name a file") from None
    if not path.is_relative_to(whole):
        raise ProblemError(f"{name}: lies outside the suite's folder {root}, and is not read; name a folder with both")
    return path


def files_named(folder: Path, names: tuple[str, ...], depth: int) -> Iterator[Path]:
    """Yield the files of these names in a folder, and in its folders down to `depth`. Symbolic links to folders are not
    followed, because they can lead in a circle."""
    for parent, folders, files in os.walk(folder):
        if len(Path(parent).relative_to(folder).parts) >= depth:
            folders.clear()
        yield from (Path(parent, name) for name in names if name in files)


def text_of(path: Path, most: int = reading.LARGEST) -> str:
    """Return the text of a file of at most `most` bytes. Raises ProblemError if it cannot be read."""
    try:
        return reading.text(path, most=most)
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: cannot be read: {reading.reason(error)}") from None


def json_file(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ProblemError if the file cannot be read or holds something else."""
    return _object(text_of(path), str(path))


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file that has one on each line. Raises ProblemError with the number of the bad
    line."""
    lines = enumerate(text_of(path).splitlines(), 1)
    return [_object(line, f"{path}: line {number}") for number, line in lines if line.strip()]


def json_value(text: str, origin: str) -> Any:
    """Return the value of a JSON text. `origin` names the text in errors. Raises ProblemError if it is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ProblemError(f"{origin}: is nested too deeply") from None
    except ValueError as error:
        raise ProblemError(f"{origin}: is not valid JSON: {error}") from None


def yaml_file(path: Path) -> dict[str, Any]:
    """Return the YAML mapping in a file. Raises ProblemError if it holds something else, or if PyYAML is missing."""
    text = text_of(path, reading.LARGEST_MANIFEST)
    try:
        import yaml
    except ModuleNotFoundError:
        raise ProblemError(f"{path}: {YAML_MISSING}") from None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        _check_expansion(root)
        value = loader.construct_document(root) if root is not None else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ProblemError(f"{path}: is not valid YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(value, dict):
        raise ProblemError(f"{path}: must hold a mapping")
    return value


def _check_expansion(root: Any) -> None:
    """Raise ValueError if a YAML document is infinite or huge once its aliases are replaced by what they repeat.

    `root` is the node of the document; an alias is the same node again.
    """
    sizes: dict[int, int] = {}
    begun: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in begun:
            raise ValueError("a value in it contains itself")
        begun.add(id(node))
        held = node.value if node is not None and not isinstance(node.value, str) else ()
        total = 1 + sum(sum(map(size, each)) if isinstance(each, tuple) else size(each) for each in held)
        if total > MOST_NODES:
            raise ValueError(f"its aliases make more than {MOST_NODES} values of it")
        sizes[id(node)] = total
        return total

    size(root)


def _object(text: str, origin: str) -> dict[str, Any]:
    value = json_value(text, origin)
    if not isinstance(value, dict):
        raise ProblemError(f"{origin}: must be a JSON object, not {type(value).__name__}")
    return value
