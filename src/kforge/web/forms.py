"""Reads the fields of a request: of a page's form, or of a JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_FIELDS = 32
"""Most fields of a form; kforge's own forms have a handful."""
FORM = "application/x-www-form-urlencoded"
"""The content type of a form."""


async def fields_of(request: Request) -> dict[str, Any]:
    """Return the fields of a form or of a JSON object. Raises RequestValidationError for anything else."""
    body = await request.body()
    try:
        if request.headers.get("content-type", "").startswith(FORM):
            return dict(parse_qsl(body.decode(), max_num_fields=MOST_FIELDS))
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestValidationError([{"loc": ("body",), "type": "json_invalid", "msg": ""}])
    return found
