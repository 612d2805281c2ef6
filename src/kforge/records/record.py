"""What all records have in common."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from kforge.errors import InputError


class Record(BaseModel):
    """An immutable value whose identity is its content."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that describe the record without being part of what it is (a display name, a place on disk)."""

    @property
    def digest(self) -> str:
        """SHA-256 over the type's name and the content: same content, same id, on every machine."""
        content = self.model_dump(mode="json", exclude=set(self.not_identity))
        text = json.dumps([type(self).__name__, content], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self, *, indent: int | None = None) -> str:
        """Raises InputError for a name that is not UTF-8, as files and folders may have."""
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
        return cls.model_validate_json(text)


def as_json(value: Record) -> Any:
    """Plain JSON data of a record, without the fields that do not apply."""
    return json.loads(value.to_json())  # not model_dump: only the JSON writer turns infinity into valid JSON
