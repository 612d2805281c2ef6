"""The login: a browser sends the token once, in a request's body, and gets a session cookie."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations at run time
from starlette.responses import JSONResponse, RedirectResponse, Response

from kforge.web import access as rules
from kforge.web.access import error_document
from kforge.web.forms import FORM, fields_of

if TYPE_CHECKING:
    from kforge.web.access import Access


class Entering:
    """The routes of the login."""

    def __init__(self, access: Access) -> None:
        self.access = access

    def router(self) -> APIRouter:
        made = APIRouter()
        made.add_api_route("/login", self.enter, methods=["POST"], response_model=None)
        return made

    async def enter(self, request: Request) -> Response:
        given = (await fields_of(request)).get("token")
        if not isinstance(given, str) or not self.access.token or not self.access.is_token(given.strip()):
            await asyncio.sleep(rules.WRONG_TOKEN_SECONDS)
            return JSONResponse(error_document("that is not this server's token"), 401)
        is_form = request.headers.get("content-type", "").startswith(FORM)
        answer: Response = RedirectResponse("/", 303) if is_form else JSONResponse({"status": "logged in"})
        answer.set_cookie(
            self.access.cookie_name, self.access.session(), max_age=rules.SESSION_SECONDS, httponly=True,
            samesite="strict",
        )  # fmt: skip
        return answer
