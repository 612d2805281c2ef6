"""The base class of all records."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from kforge.errors import InputError


class Record(BaseModel):
    """An immutable value that is identified by its content: equal content gives an equal `digest`."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not count for the digest, such as a display name or a path."""

    @property
    def digest(self) -> str:
        """SHA-256 of the type's name and the content. It is the same on every machine."""
        content = self.model_dump(mode="json", exclude=set(self.not_identity))
        text = json.dumps([type(self).__name__, content], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the record as JSON. Raises InputError if it contains a file name that is not UTF-8."""
        try:
            return self.model_dump_json(indent=indent, exclude_none=True)
        except PydanticSerializationError as error:
            if "surrogates not allowed" not in str(error):
                raise
            raise InputError(
                "a name of a file or folder here is not UTF-8, and cannot be recorded: rename it"
            ) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the record that a JSON text describes. Raises pydantic's ValidationError, a ValueError, if it does not
        fit."""
        return cls.model_validate_json(text)


def as_json(value: Record) -> Any:
    """Return a record as plain JSON data (dicts and lists), without fields that have no value."""
    return json.loads(value.to_json())  # not model_dump: only the JSON writer turns infinity into valid JSON
