"""The wire is real: a server on a socket, the provider's own client, bytes that come, do not come, or come broken."""

import asyncio
import re
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from kforge.errors import ModelError, ProviderError
from kforge.models import Exchange, ExchangedModel, open_model
from kforge.models.providers import Patience, ProviderModel
from kforge.records import Usage

HASTY = Patience(attempts=3, timeout=5.0, first_wait=0.01, longest_wait=0.05)


@pytest.fixture
def model(server, secret, tmp_path):
    name = f"openai:tiny@{server.url}"
    keys = {"KFORGE_SERVER_API_KEY": secret}
    return ExchangedModel(ProviderModel.open(name, keys, HASTY), Exchange(tmp_path))


def impatient(server, timeout, attempts=1):
    patience = Patience(attempts=attempts, timeout=timeout, first_wait=0.01, longest_wait=0.05)
    return ProviderModel.open(f"openai:tiny@{server.url}", {}, patience)


def test_an_answer_comes_through_with_its_usage(model, server, ask):
    server.script = [server.say("hello")]
    reply = model.complete(ask(model=model.name))
    assert (reply.text, reply.model, reply.finish) == ("hello", "tiny-1", "stop")
    assert reply.usage == Usage(requests=1, input_tokens=11, output_tokens=7)
    (body,) = server.bodies
    assert body["model"] == "tiny"
    assert [(m["role"], m["content"]) for m in body["messages"]] == [("system", "be good"), ("user", "how? 1")]
    assert 100 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert "temperature" not in body


def test_a_conversation_and_a_temperature_come_through(model, server, ask):
    from kforge.models import Message

    server.script = [server.say("hello")]
    turns = (Message(role="assistant", text="so", fingerprint="so"), Message(role="user", text="no", fingerprint="no"))
    request = ask(model=model.name)
    model.complete(request.model_copy(update={"messages": request.messages + turns, "temperature": 0.5}))
    assert [m["role"] for m in server.bodies[0]["messages"]] == ["system", "user", "assistant", "user"]
    assert server.bodies[0]["temperature"] == 0.5


def test_a_cut_off_answer_says_so(model, server, ask):
    server.script = [server.say("hel", finish="length")]
    assert model.complete(ask(model=model.name)).finish == "length"


FAULTS = {
    "rate limit": lambda s: s.send(429, '{"error": {"message": "slow down"}}', headers={"Retry-After": "0"}),
    "server error": lambda s: s.send(500, '{"error": {"message": "oops"}}'),
    "overloaded": lambda s: s.send(503, "busy", "text/plain"),
    "garbage": lambda s: s.send(200, "<html>not an answer</html>", "text/html"),
    "broken json": lambda s: s.send(200, '{"choices": [', "application/json"),
    "json of another kind": lambda s: s.send(200, '{"answer": 42}'),
    "empty body": lambda s: s.send(200, ""),
    "half an answer": lambda s: s.cut,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_is_asked_again(model, server, ask, fault):
    server.script = [FAULTS[fault](server), FAULTS[fault](server), server.say("hello")]
    reply = model.complete(ask(model=model.name))
    assert reply.text == "hello"
    assert len(server.bodies) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lasting_fault_ends_after_bounded_attempts(model, server, ask, fault, tmp_path):
    server.script = [FAULTS[fault](server)]
    with pytest.raises(ProviderError, match="after 3 attempts") as caught:
        model.complete(ask(model=model.name))
    assert "\n" not in str(caught.value)
    assert len(server.bodies) == 3
    assert not list(tmp_path.glob("*.reply.json"))


@pytest.mark.parametrize("script", ["delay", "drip"])
def test_a_server_that_takes_for_ever_is_given_up(server, ask, script):
    gone = threading.Event()
    server.script = [server.drip if script == "drip" else lambda _: gone.wait(10)]
    try:
        with pytest.raises(ProviderError, match="after 2 attempts"):
            impatient(server, timeout=1.0, attempts=2).complete(ask())
    finally:
        gone.set()
    assert len(server.bodies) == 2


@pytest.fixture
def closed_port():
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "it refuses the connection"), ("no-host.invalid", "its host name is not known")]
)
def test_a_server_that_cannot_be_reached_is_given_up_soon_with_one_clear_line(ask, closed_port, provider, host, why):
    told = []
    patience = Patience(attempts=5, first_wait=0.01, longest_wait=0.05)
    name = f"{provider}:tiny@http://{host}:{closed_port}/v1"
    with pytest.raises(ProviderError) as caught:
        ProviderModel.open(name, {}, patience, told.append).complete(ask())
    assert str(caught.value) == (
        f"{name}: the server cannot be reached, {why}; check that it runs, its URL and the network (after 2 attempts)"
    )
    waiting, failed, again = told
    assert waiting == f"waiting for {name}, attempt 1 of 5, at most 900 s each"
    assert failed.startswith("attempt 1 of 5 failed, the next one begins in 0 s: ")
    assert again == f"waiting for {name}, attempt 2 of 5, at most 900 s each"


def test_every_attempt_on_a_server_that_does_not_answer_is_told(server, ask):
    told = []
    gone = threading.Event()
    server.script = [lambda _: gone.wait(10)]
    patience = Patience(attempts=2, timeout=0.5, first_wait=0.01, longest_wait=0.05)
    model = ProviderModel.open(f"openai:tiny@{server.url}", {}, patience, told.append)
    try:
        with pytest.raises(ProviderError, match="after 2 attempts"):
            model.complete(ask())
    finally:
        gone.set()
    assert told[0] == f"waiting for {model.name}, attempt 1 of 2, at most 0.5 s each"
    assert told[1].startswith("attempt 1 of 2 failed, the next one begins in 0 s: ")
    assert told[2] == f"waiting for {model.name}, attempt 2 of 2, at most 0.5 s each"


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "google", "vllm"])
def test_every_provider_of_the_extra_leaves_retries_to_us(server, ask, provider):
    server.script = [server.send(500, '{"error": {"message": "oops"}}')]
    with pytest.raises(ProviderError, match=r"500.*oops.*after 3 attempts"):
        ProviderModel.open(f"{provider}:tiny@{server.url}", {}, HASTY).complete(ask())
    assert len(server.bodies) == 3


@pytest.mark.parametrize(("status", "kind"), [(400, ProviderError), (401, ModelError), (404, ModelError)])
def test_a_refusal_is_not_asked_again(model, server, ask, status, kind):
    server.script = [server.send(status, '{"error": {"message": "no"}}')]
    with pytest.raises(kind):
        model.complete(ask(model=model.name))
    assert len(server.bodies) == 1


def test_an_exhausted_quota_is_not_asked_again(model, server, ask):
    server.script = [server.send(429, '{"error": {"message": "no money", "code": "insufficient_quota"}}')]
    with pytest.raises(ProviderError, match="no money"):
        model.complete(ask(model=model.name))
    assert len(server.bodies) == 1


def test_the_key_reaches_the_server_and_nothing_else(model, server, ask, secret, tmp_path):
    server.script = [
        server.send(401, f'{{"error": {{"message": "Incorrect API key provided: {secret[:8]}****{secret[-4:]}"}}}}'),
        server.send(403, f'{{"error": {{"message": "the key {secret} may not do this"}}}}'),
        server.say("hello"),
    ]
    shown = [repr(model.source), str(vars(model.exchange))]
    for told in ("the provider refuses the key", "[key] may not do this"):
        with pytest.raises(ModelError, match=re.escape(told)) as caught:
            model.complete(ask(model=model.name))
        assert caught.value.__suppress_context__
        shown += [str(caught.value), repr(caught.value)]
    assert set(server.keys) == {f"Bearer {secret}"}
    model.complete(ask(model=model.name))
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert not any(part in text for text in shown + written for part in (secret, secret[:8], secret[-4:]))


def test_a_provider_key_is_never_sent_to_a_server_given_by_url(server, ask, secret, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    server.script = [server.say("hello")]
    ProviderModel.open(f"openai:tiny@{server.url}", {"OPENAI_API_KEY": secret}).complete(ask())
    assert secret not in server.keys[0]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-pro", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_missing_key_is_named(name, variable, tmp_path):
    with pytest.raises(ModelError, match=f"needs a key: set {variable}") as caught:
        open_model(name, exchange=tmp_path, keys={"OTHER_API_KEY": "x"})
    assert "\n" not in str(caught.value)
    assert open_model(name, exchange=tmp_path, keys={variable.split()[-1]: "x"}).name == name


def test_an_unknown_provider_is_one_clear_line(tmp_path):
    with pytest.raises(ModelError, match="no provider 'oracle'") as caught:
        open_model("oracle:delphi", exchange=tmp_path, keys={"ORACLE_API_KEY": "x"})
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_named():
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        sys.modules["pydantic_ai"] = None
        from kforge.errors import ModelError
        from kforge.models import open_model
        try:
            open_model("openai:gpt-5", exchange=Path("nowhere"), keys={"OPENAI_API_KEY": "x"})
        except ModelError as error:
            sys.exit(0 if "pip install 'kforge[models]'" in str(error) else str(error))
    """)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_models_is_cheap():
    code = "import sys, kforge.models; sys.exit('pydantic_ai' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_answers_inside_a_running_event_loop(model, server, ask):
    server.script = [server.say("hello")]

    async def notebook() -> str:
        return model.complete(ask(model=model.name)).text

    assert asyncio.run(notebook()) == "hello"


def test_a_known_price_is_counted_and_an_unknown_one_is_absent(server, ask):
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.usage import RequestUsage

    model = ProviderModel.open("openai:gpt-4o", {"OPENAI_API_KEY": "x"})
    usage = RequestUsage(input_tokens=1000, output_tokens=1000)
    known, unknown = (
        model._reply(ModelResponse([TextPart("a")], usage=usage, model_name=name, provider_name="openai"))
        for name in ("gpt-4o", "nobody-knows-this")
    )
    assert known.usage.cost_usd is not None
    assert known.usage.cost_usd > 0
    assert unknown.usage.cost_usd is None


def test_waits_grow_are_bounded_and_keep_to_what_was_asked():
    patience = Patience(first_wait=1.0, longest_wait=8.0)
    waits = [[patience.wait(failures, None) for _ in range(50)] for failures in range(1, 8)]
    for exponent, seen in enumerate(waits):
        bound = min(8.0, 2.0**exponent)
        assert all(bound / 2 <= wait <= bound for wait in seen)
        assert len(set(seen)) > 1
    assert patience.wait(1, 5.0) == 5.0
    assert patience.wait(1, 3600.0) == 8.0
