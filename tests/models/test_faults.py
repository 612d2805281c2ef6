"""A run over a server that fails in every way: each fault is survived or told in one line, and no key is shown."""

import json

import pytest
from tests.models.doubling import PROBLEM, PROGRAM

from kforge.models import Ledger

QUICK = ("-p", "null", "--no-compile-baseline", "--replications", "0", "--no-sanitize", "-n", "1")


@pytest.fixture
def command(kforge_in_process, server, secret, tmp_path):
    """Runs kforge with a key for the server, and checks that nothing that it writes has the key in it."""
    (tmp_path / "double.py").write_text(PROBLEM)
    environment = {"KFORGE_SERVER_API_KEY": secret, "OPENAI_API_KEY": f"{secret}-other", "KFORGE_TIMING": "0.1"}

    def carry_out(*arguments):
        ran = kforge_in_process(*arguments, environment=environment)
        said = ran.stdout + ran.stderr
        written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert written
        assert not [path for path, content in written.items() if secret.encode() in content]
        assert secret not in said
        assert secret[:10] not in said
        return ran

    return carry_out


def forge(command, server):
    return command("forge", "double.py", *QUICK, "-m", f"openai:tiny@{server.url}", "--json")


def run_folder(tmp_path):
    (folder,) = (tmp_path / "kforge-runs").glob("2*")
    return folder


def refusals(secret):
    """Answers that end a run at once, and quote the key as real providers do; each with what the user is told."""
    quoted = f'{{"error": {{"message": "Bearer {secret} is not good, {secret}"}}}}'
    masked = f'{{"error": {{"message": "Incorrect API key provided: {secret[:10]}***{secret[-4:]}"}}}}'
    return {401: (masked, "the provider refuses the key"), 403: (quoted, "[key]"), 400: (quoted, "[key]")}


def test_no_key_is_shown_or_written_and_the_run_goes_on(command, server, secret, tmp_path):
    for status, (body, told) in refusals(secret).items():
        server.script = [server.send(status, body)]
        arguments = ("resume", run_folder(tmp_path)) if (tmp_path / "kforge-runs").exists() else None
        ran = command(*arguments) if arguments else forge(command, server)
        assert ran.status == 2
        assert told in ran.stderr.splitlines()[-1]
    assert set(server.keys) == {f"Bearer {secret}"}
    # a passing fault that quotes the key as well, and then the answer
    server.bodies.clear()
    busy = server.send(500, refusals(secret)[403][0])
    server.script = [busy, server.say(PROGRAM, model="tiny")]
    ran = command("resume", run_folder(tmp_path), "--json")
    document = json.loads(ran.stdout)
    assert [attempt["state"] for attempt in document["attempts"]] == ["correct"]
    assert [call["tries"] for call in document["ledger"]["calls"]] == [2]


FAULTS = {
    "429 without retry-after": lambda s: s.send(429, '{"error": {"message": "slow down"}}'),
    "429 with a long retry-after": lambda s: s.send(429, "{}", headers={"Retry-After": "100000"}),
    "500": lambda s: s.send(500, "oops", "text/plain"),
    "cut stream": lambda s: s.cut_stream,
    "garbage": lambda s: s.send(200, "\x00\x01<html>", "text/html"),
    "no choices": lambda s: s.send(200, '{"id": "1", "object": "chat.completion", "model": "tiny", "choices": []}'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lasting_fault_is_one_line_and_leaves_a_run_that_goes_on(command, server, tmp_path, monkeypatch, fault):
    from kforge.models import providers

    hasty = providers.Patience(attempts=2, timeout=5.0, first_wait=0.01, longest_wait=0.02)
    monkeypatch.setattr(providers, "Patience", lambda: hasty)
    server.script = [FAULTS[fault](server)]
    ran = forge(command, server)
    assert ran.status == 2
    assert (ran.stdout, ran.stderr.count("kforge: ")) == ("", 1)
    assert "(after 2 attempts); to go on: kforge resume " in ran.stderr.splitlines()[-1]
    assert len(server.bodies) == 2
    assert Ledger.read(run_folder(tmp_path) / "exchange").calls == ()
    shown = json.loads(command("show", run_folder(tmp_path), "--json").stdout)
    assert (shown["status"], shown["attempts"]) == ("interrupted", [])


@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_empty_answer_is_asked_again_and_then_counts_as_no_program(command, server, content):
    server.script = [server.say(content, model="tiny")]
    ran = forge(command, server)
    document = json.loads(ran.stdout)
    assert ran.status == 1
    assert [attempt["state"] for attempt in document["attempts"]] == ["generation_failure"]
    assert "empty" in document["attempts"][0]["reason"]
    assert len(document["ledger"]["calls"]) == len(server.bodies) == 2
