"""Attacks on the server: other sites' pages, rebound names, traversal, huge and slow requests, guessed tokens."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from kforge.errors import InputError
from kforge.web import access as rules
from kforge.web import server
from kforge.web.access import Access

if TYPE_CHECKING:
    from tests.conftest import RunKforge
    from tests.web.conftest import Served

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "[::1",
        "0x7f000001",
        "",
        "10.0.0.1",
        "evil@127.0.0.1:80",
    ],
)
def test_a_name_that_dns_could_point_here_is_refused(open_server: Served, host: str) -> None:
    refused = open_server.ask("/health", Host=host)
    assert refused.status == 403 or (host == "" and refused.status == 400)
    assert b"healthy" not in refused.body


def test_this_machine_by_its_names_is_served(open_server: Served) -> None:
    for host in ("127.0.0.1", "localhost:1", "[::1]:8765"):
        assert open_server.ask("/health", Host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate"},
        {"Content_Type": "text/plain"},
        {"Content_Type": FORM},
        {},
    ],
)
def test_a_page_of_another_site_starts_nothing(open_server: Served, headers: dict[str, str]) -> None:
    refused = open_server.ask("/runs", body=b'{"problem": "tiny"}', **headers)
    assert refused.status == 403
    assert not open_server.dashboard.processes.jobs()


def test_a_page_of_another_site_reads_nothing(open_server: Served) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}):
        assert open_server.ask("/api/runs", **headers).status == 403
    answer = open_server.ask("/api/runs")
    assert "access-control-allow-origin" not in answer.headers
    assert open_server.ask("/evaluate", method="OPTIONS", Origin="http://evil.example").status == 403


def test_every_answer_has_the_headers_that_keep_a_browser_safe(open_server: Served) -> None:
    for path in ("/health", "/api/runs", "/nothing", "/static/nothing.js"):
        headers = open_server.ask(path).headers
        for name, value in rules.HEADERS.items():
            assert headers[name.lower()] == value
        assert "server" not in headers
    assert "unsafe" not in rules.HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "name", ["..", "../..", "%2e%2e", "..%2f..%2fetc", "/etc/passwd", "a%00b", "*", "%ff", "<script>", "x" * 5000]
)
def test_a_name_is_no_path(open_server: Served, name: str) -> None:
    (open_server.dashboard.root.parent / "run.json").write_text("{}")
    for path in (f"/api/runs/{name}", f"/runs/{name}/kernel.py", f"/suites/{name}/kernel/x", f"/static/{name}"):
        answer = open_server.ask(path.replace("<", "%3c").replace(">", "%3e"))
        assert answer.status in (404, 405)
        assert answer.headers["content-type"] == "application/json"  # and so nothing in it is HTML


def test_a_huge_request_is_refused_before_it_is_read(open_server: Served) -> None:
    refused = open_server.ask("/evaluate", body=b"{}", Content_Type="application/json", Content_Length="99999999999")
    assert refused.status == 413
    with socket.create_connection(("127.0.0.1", open_server.access.port)) as wire:
        wire.sendall(b"POST /evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(rules.LARGEST_BODY // 0x100000 + 2):
                wire.sendall(chunk)
            said = wire.recv(4096)
        except OSError:  # closed while we still sent
            return
    assert b" 413 " in said


def test_deep_and_broken_json_is_one_line(open_server: Served) -> None:
    for body in (b"[" * 100_000, b"{", b"\xff", b"[]", b'"x"', b"NaN"):
        refused = open_server.ask("/evaluate", body=body, Content_Type="application/json")
        assert refused.status in (400, 422)
        assert "\n" not in refused.document["error"]


def test_a_client_that_sends_nothing_is_dropped(open_server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_SECONDS", 0.3)
    monkeypatch.setattr(rules, "BODY_SECONDS", 0.3)
    for begun in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
        with socket.create_connection(("127.0.0.1", open_server.access.port)) as wire:
            wire.sendall(begun)
            assert wire.recv(100) == b""
    with socket.create_connection(("127.0.0.1", open_server.access.port)) as wire:
        wire.sendall(b"POST /evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.sendall(b"Content-Length: 100\r\n\r\n{")
        assert b" 408 " in wire.recv(4096)


def test_without_the_token_nothing_is_told(locked_server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "WRONG_TOKEN_SECONDS", 0.0)
    ask, token = locked_server.ask, locked_server.access.token
    for path in ("/", "/api/runs", "/api/problems", "/events", "/nothing"):
        assert ask(path).status == 401
        assert ask(f"{path}?token={token}").status == 401  # never in a URL
        assert ask(path, Authorization=f"Bearer {token}x").status == 401
        assert ask(path, Cookie=f"kforge_{locked_server.access.port}={token}").status == 401
    assert ask("/evaluate", {}).status == 401
    assert ask("/health").document["status"] == "healthy"
    page = ask("/", Accept="text/html")
    assert (page.status, page.headers["location"]) == (303, "/login")


def test_the_token_opens_by_header_and_by_a_session(locked_server: Served) -> None:
    ask, token, port = locked_server.ask, locked_server.access.token, locked_server.access.port
    assert ask("/api/runs", Authorization=f"Bearer {token}").status == 200
    assert ask("/login", {"token": "wrong"}).status == 401
    entered = ask("/login", {"token": token})
    assert entered.status == 200
    cookie = entered.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/", f"kforge_{port}="))
    assert token not in cookie
    session = cookie.partition(";")[0]
    assert ask("/api/runs", Cookie=session).status == 200
    forged = ask("/runs", body=b"problem=tiny", Cookie=session, Content_Type=FORM, Origin="http://evil.example")
    assert forged.status == 403


@pytest.mark.parametrize("given", ["wrong", "\ud800", "correct-horse-battery\udfff", "\0é\U0001f600"])
def test_any_wrong_token_is_refused_after_the_pause(
    locked_server: Served, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Cause: a lone surrogate could not be encoded, and the server answered 500 without a pause."""
    monkeypatch.setattr(rules, "WRONG_TOKEN_SECONDS", 0.2)
    start = time.monotonic()
    assert locked_server.ask("/login", {"token": given}).status == 401
    assert time.monotonic() - start >= 0.2


def test_a_server_for_other_machines_always_has_a_token() -> None:
    access = Access.of("0.0.0.0", 8765, None)
    assert len(access.token) >= 32
    assert access.token != Access.of("0.0.0.0", 8765, None).token
    assert Access.of("127.0.0.1", 8765, None).token == ""
    assert access.knows_host("192.168.1.7:8765")
    assert access.knows_host(socket.gethostname())
    assert not access.knows_host("rebound.example:8765")
    for bad in ("", "short", "x" * 15, "é" * 20, "x" * 20 + "\n"):
        with pytest.raises(InputError, match="at least 16"):
            Access.of("127.0.0.1", 8765, bad)


def test_more_pages_than_may_be_open_are_told_so(open_server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from kforge.web import live

    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    with socket.create_connection(("127.0.0.1", open_server.access.port)) as wire:
        wire.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        while b"event: change" not in said:
            said += wire.recv(4096)
        assert open_server.ask("/events").status == 429
    while open_server.dashboard.changes.open_streams:  # the server notices that the page is gone
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--token", "short"), "--token needs at least 16 printable ASCII characters"),
        (("--problems", "nowhere"), "nowhere"),
        (("--host", "203.0.113.7"), "nothing can listen at 203.0.113.7 port 8765"),
    ],
)
def test_a_server_that_cannot_begin_says_so_in_one_line(
    kforge_in_process: RunKforge, arguments: tuple[str, ...], said: str
) -> None:
    ran = kforge_in_process("serve", "-p", "null", *arguments)
    assert (ran.status, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
