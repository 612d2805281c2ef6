"""Requests to start a run that the server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import Served


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("fastest", "search: unknown search 'fastest'; choose linear, best-of:N, beam:K or tree"),
        ("beam:0", "search: the number in beam:N must be between 1 and 16, not '0'"),
    ],
)
def test_an_unknown_search_strategy_is_answered_as_a_wrong_request(open_server: Served, search: str, said: str) -> None:
    refused = open_server.ask("/runs", {"problem": "tiny", "search": search})
    assert (refused.status, refused.document["error"]) == (422, said)
    assert open_server.ask("/api/jobs").document["jobs"] == []
