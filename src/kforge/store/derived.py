"""Facts that were derived from a finished run, kept beside it, so that lists of many runs need not read every attempt.

<run>/derived/<name>    the user's signature on the first line, the shape of the facts on the second, the facts as JSON

Only the user's own kforge can have made a file whose signature is valid. It holds for one run, one problem and one
outcome: a run that is reopened and ends again gets new facts. Everything can be derived again, so a file that does not
fit is ignored, and replaced.
"""

from __future__ import annotations

import functools
import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kforge import durable
from kforge.errors import RunError

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.records import Record
    from kforge.store.record_files import R
    from kforge.store.signature import Key

FOLDER = "derived"
"""Name of the folder inside a run."""
LARGEST = 16 * 2**20
"""Most bytes of a file that is read: the facts about a thousand attempts take a few hundred thousand."""


def read(run: Path, name: str, kind: type[R], key: Key, problem: str = "") -> R | None:
    """Return the facts of this name about a finished run; None if there are none that this key signed.

    `run` is the run's folder. `problem` is the digest of the problem for which they must have been derived; empty if
    that does not matter.
    """
    content = _signed(run, name, key, problem)
    if content is None:
        return None
    shape, _, text = content.partition(b"\n")
    if shape != _shape(kind):
        return None
    with suppress(ValidationError):
        return kind.from_json(text)
    return None


def is_kept(run: Path, key: Key, problem: str) -> bool:
    """Return whether this key signed any facts about the run: then it is finished, and the user's own."""
    return any(_signed(run, file.name, key, problem) is not None for file in (run / FOLDER).glob("*"))


def keep(run: Path, name: str, facts: Record, key: Key, problem: str = "") -> None:
    """Keep facts about a finished run that this key signed. Nothing is kept where the folder cannot be written."""
    content = _shape(type(facts)) + b"\n" + facts.to_json().encode()
    with suppress(RunError, OSError):
        purpose = _purpose(run, name, problem)
        if (signature := key.sign(purpose, content)) is not None:
            durable.make_folder(run / FOLDER, within=run)
            durable.write(run / FOLDER / name, signature.encode() + b"\n" + content, shared=True, within=run)


def _signed(run: Path, name: str, key: Key, problem: str) -> bytes | None:
    """Return the shape and the facts, as they were signed; None if the key did not sign them."""
    with suppress(RunError, OSError, UnicodeDecodeError):
        signature, _, content = durable.read(run / FOLDER / name, most=LARGEST).partition(b"\n")
        if key.has_signed(_purpose(run, name, problem), content, signature.decode("ascii")):
            return content
    return None


def _purpose(run: Path, name: str, problem: str) -> str:
    """Return what a signature is for. Raises OSError if the run has no outcome."""
    result = (run / "result.json").lstat()
    return f"{name} of run {run.name}, problem {problem or 'any'}, outcome {result.st_size} {result.st_mtime_ns}"


@functools.cache
def _shape(kind: type[Record]) -> bytes:
    """Return a hash of the fields of a record, and of those inside it: another version of kforge may have others."""
    schema = json.dumps(kind.model_json_schema(), sort_keys=True)
    return hashlib.sha256(schema.encode()).hexdigest().encode()
