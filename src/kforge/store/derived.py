"""Caches facts about a finished run in the run's folder, so that lists of many runs need not read every attempt.

<run>/derived/<name>    three parts: the user's signature, a hash of the facts' JSON schema (one line each), and the
                        facts as JSON

A valid signature proves that this user's kforge wrote the file, for one run with one header, problem and outcome. A run
that is reopened and ends again gets new facts. All facts can be derived again, so an invalid file is ignored and
replaced. So are all files while others can read the key; checks of trust, such as `RunFolder.hold_to`, report that.
"""

from __future__ import annotations

import functools
import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kforge import durable
from kforge.errors import InputError, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.records import Record
    from kforge.store.record_files import R
    from kforge.store.signature import Key

FOLDER = "derived"
"""Name of the folder inside a run."""
SUMMARY = "summary"
"""Name of the facts with the summary of a run, by which lists of runs describe it."""
LARGEST = 16 * 2**20
"""Most bytes of a file that is read. The facts about a thousand attempts take a few hundred thousand bytes."""


def read(run: Path, name: str, kind: type[R], key: Key, problem: str = "") -> R | None:
    """Return the facts of this name about a finished run. None if there are none that this key signed, or if their
    record type has changed.

    `run` is the run's folder. `problem` is the digest of the problem that `keep` was given.
    """
    content = _signed(run, name, key, problem)
    if content is None:
        return None
    schema, _, text = content.partition(b"\n")
    if schema != _schema_hash(kind):
        return None
    with suppress(ValidationError):
        return kind.from_json(text)
    return None


def is_kept(run: Path, key: Key, problem: str) -> bool:
    """Return whether this key signed any facts about the run. If so, the run is finished, and this user made it."""
    return any(_signed(run, file.name, key, problem) is not None for file in (run / FOLDER).glob("*"))


def keep(run: Path, name: str, facts: Record, key: Key, problem: str = "") -> None:
    """Sign facts about a finished run and store them. Nothing is stored if the run's folder cannot be written, or if
    others can read the key."""
    content = _schema_hash(type(facts)) + b"\n" + facts.to_json().encode()
    with suppress(InputError, RunError, OSError):
        purpose = _purpose(run, name, problem)
        if (signature := key.sign(purpose, content)) is not None:
            # not synced, which takes most of the time: a file that a power failure spoils has no valid signature
            durable.make_folder(run / FOLDER, within=run, synced=False)
            signed = signature.encode() + b"\n" + content
            durable.write(run / FOLDER / name, signed, shared=True, within=run, synced=False)


def _signed(run: Path, name: str, key: Key, problem: str) -> bytes | None:
    """Return the content of the file after the signature; None if the key did not sign it."""
    with suppress(InputError, RunError, OSError, UnicodeDecodeError):
        signature, _, content = durable.read(run / FOLDER / name, most=LARGEST).partition(b"\n")
        if key.has_signed(_purpose(run, name, problem), content, signature.decode("ascii")):
            return content
    return None


def _purpose(run: Path, name: str, problem: str) -> str:
    """Return the purpose that a signature states. It differs for every header and outcome. Raises OSError if the run
    has none."""
    header, outcome = ((run / file).lstat() for file in ("run.json", "result.json"))
    marks = f"header {header.st_size} {header.st_mtime_ns}, outcome {outcome.st_size} {outcome.st_mtime_ns}"
    return f"{name} of run {run.name}, problem {problem or 'any'}, {marks}"


@functools.cache
def _schema_hash(kind: type[Record]) -> bytes:
    """Return a hash of a record type's JSON schema, which may differ in another version of kforge. Docstrings, which
    the schema has as descriptions, do not count."""
    schema = json.dumps(_without_descriptions(kind.model_json_schema()), sort_keys=True)
    return hashlib.sha256(schema.encode()).hexdigest().encode()


def _without_descriptions(schema: Any) -> Any:
    """Return a JSON schema without its descriptions. A field named `description` stays: its value is a schema."""
    if isinstance(schema, list):
        return [_without_descriptions(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_descriptions(part)
        for name, part in schema.items()
        if name != "description" or not isinstance(part, str)
    }
