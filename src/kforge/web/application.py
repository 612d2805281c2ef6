"""Puts the server together: the guard, the evaluation API, the control of runs, the pages, and the form of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kforge.errors import InputError, KforgeError, ServiceBusy, TookTooLong
from kforge.records.faults import plain_reason
from kforge.web.access import Guard, error_document
from kforge.web.control import Control
from kforge.web.entering import Entering
from kforge.web.evaluating import BadField, Evaluating
from kforge.web.folders import NoSuchFolder
from kforge.web.pages import Pages, error_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from kforge.web.access import Access
    from kforge.web.control import Dashboard

RETRY_SECONDS = 5
"""Seconds that a client is told to wait if the server is busy: about the time of one evaluation."""


def application(dashboard: Dashboard, access: Access) -> ASGIApp:
    """Return the whole server as an ASGI application."""
    # FastAPI's own pages of documentation load scripts from another site
    made = FastAPI(title="kforge", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    made.include_router(Evaluating(dashboard.service).router())
    made.include_router(Entering(access).router())
    made.include_router(Control(dashboard).router())
    made.include_router(Pages(dashboard).router())
    made.add_exception_handler(RequestValidationError, _bad_fields)
    made.add_exception_handler(HTTPException, _http_error)
    made.add_exception_handler(KforgeError, _our_error)
    return Guard(made, access)


async def _bad_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = {}
    for each in error.errors():
        place = [part for part in each["loc"] if part != "body"]
        fields[str(place[0]) if place else "body"] = _plainly(each)
    return _said(request, 422, "the request has wrong fields", fields)


def _plainly(detail: Mapping[str, Any]) -> str:
    """Return a message about a field of a request."""
    of_requests = {
        "extra_forbidden": "is not a field of this request", "model_attributes_type": "must be a JSON object",
    }  # fmt: skip
    return of_requests.get(detail["type"]) or plain_reason(detail)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _said(request, error.status_code, str(error.detail).lower())
    answer.headers.update(error.headers or {})
    return answer


async def _our_error(request: Request, error: Exception) -> Response:
    match error:
        case BadField():
            return _said(request, 422, "the request has wrong fields", {error.field: str(error)})
        case ServiceBusy():
            answer = _said(request, 429, str(error))
            answer.headers["Retry-After"] = str(RETRY_SECONDS)
            return answer
        case NoSuchFolder():
            return _said(request, 404, str(error))
        case TookTooLong():
            return _said(request, 504, str(error))
        case InputError():
            return _said(request, 422, str(error))
    return _said(request, 500, str(error))


def _said(request: Request, status: int, reason: str, fields: dict[str, str] | None = None) -> Response:
    """Return an error as a page for a browser, and as a document for a program."""
    if "text/html" in request.headers.get("accept", ""):
        return error_page(reason, status, fields)
    return JSONResponse(error_document(reason, fields), status)
