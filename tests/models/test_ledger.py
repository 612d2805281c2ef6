"""The ledger: every call once, with its price, time and agent; unknown prices are said."""

import pytest

from kforge.models import Ledger, ModelSettings, open_model
from kforge.models.prices import OWN_PRICES, Price, price_table
from kforge.models.progress import progress
from kforge.models.providers import ProviderModel
from kforge.records import Attempt, GenerationFailure, Usage

OWN = ModelSettings(price_in=1000.0, price_out=2000.0)


@pytest.fixture
def opened(server, tmp_path):
    def make(settings=None):
        return open_model(f"openai:tiny@{server.url}", exchange=tmp_path, keys={}, settings=settings)

    return make


def test_every_call_is_in_the_ledger_once_after_a_resume(server, opened, ask, tmp_path):
    busy = server.send(429, '{"error": {"message": "slow down"}}', headers={"Retry-After": "0"})
    server.script = [server.say("one", model="tiny"), busy, server.say("two", model="tiny")]
    model = opened(OWN)
    model.source._patience = type(model.source._patience)(first_wait=0.01, longest_wait=0.02)
    for question, agent, step in (("a", "generation", 0), ("b", "analysis", 1)):
        request = ask(question, model=model.name, agent=agent).model_copy(update={"step": step})
        model.complete(request)
        opened(OWN).complete(request)  # a resumed run asks the same question
    ledger = Ledger.read(tmp_path)
    assert [(call.question, call.agent, call.step, call.tries) for call in ledger.calls] == [
        ("001-generation", "generation", 0, 1),
        ("002-analysis", "analysis", 1, 2),
    ]
    assert {call.model for call in ledger.calls} == {"tiny"}
    assert {call.asked for call in ledger.calls} == {model.name}
    assert all(call.seconds > 0 for call in ledger.calls)
    assert ledger.seconds == pytest.approx(sum(call.seconds for call in ledger.calls))
    one = Usage(requests=1, input_tokens=11, output_tokens=7, cost_usd=11 * 0.001 + 7 * 0.002)
    assert ledger.of("analysis").usage == one
    assert ledger.usage == one + one
    assert ledger.until(0).usage == one
    assert ledger.prices == (OWN_PRICES,)
    assert len(server.bodies) == 3


def test_an_unknown_price_is_none_and_is_counted(server, opened, ask, tmp_path):
    server.script = [server.say("one")]
    opened().complete(ask("a", model=opened().name))
    opened(OWN).complete(ask("b", model=opened().name))
    first, second = Ledger.read(tmp_path).calls
    assert first.usage.cost_usd is None
    assert second.usage.cost_usd is not None
    both = Ledger.read(tmp_path).usage
    assert (both.cost_usd, both.calls_without_price) == (second.usage.cost_usd, 1)
    assert (first.usage + first.usage).calls_without_price == 2


def test_own_prices_of_an_answer_without_token_counts_stay_unknown(tmp_path, ask):
    (tmp_path / "a.md").write_text("x")
    model = open_model(f"scripted:{tmp_path}/a.md", exchange=tmp_path / "e", keys={}, settings=OWN)
    assert model.complete(ask(model=model.name)).usage.cost_usd is None


def test_the_price_table_has_a_date_and_prices_known_models():
    assert price_table().startswith("genai-prices ")
    assert ", prices up to 20" in price_table()
    known = Price("openai:gpt-4o", ModelSettings()).cost(1_000_000, 0)
    assert known is not None
    assert known > 0
    assert Price("openai:gpt-4o@http://host/v1", ModelSettings()).cost(1, 1) is None
    assert Price("openai:nobody-knows-this", ModelSettings()).cost(1, 1) is None
    assert Price("exchange", ModelSettings()).cost(1, 1) is None


def test_a_priced_reply_names_its_table():
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.usage import RequestUsage

    model = ProviderModel.open("openai:gpt-4o", {"OPENAI_API_KEY": "x"})
    usage = RequestUsage(input_tokens=1000, output_tokens=1000)
    known, unknown = (
        model._reply(ModelResponse([TextPart("a")], usage=usage, model_name=name, provider_name="openai"))
        for name in ("gpt-4o", "nobody-knows-this")
    )
    assert (known.prices, unknown.prices) == (price_table(), "")


def test_progress_has_the_cost_and_the_time_after_each_attempt(server, opened, ask, tmp_path):
    server.script = [server.say("one")]
    for step in range(2):
        opened(OWN).complete(ask(model=opened().name).model_copy(update={"step": step}))
    attempts = [
        Attempt(index=index, phase="functional", failure=GenerationFailure(reason="none"), elapsed=10.0 * (index + 1))
        for index in range(2)
    ]
    one, two = progress(attempts, Ledger.read(tmp_path))
    assert (one.attempt, one.best, one.speedup, one.seconds) == (0, None, None, 10.0)
    assert (one.usage.requests, two.usage.requests, two.seconds) == (1, 2, 20.0)
    assert two.usage.cost_usd == pytest.approx(2 * one.usage.cost_usd)


def test_a_damaged_reply_is_left_out_and_left_where_it_is(server, opened, ask, tmp_path):
    server.script = [server.say("one")]
    for question in ("a", "b"):
        opened(OWN).complete(ask(question, model=opened().name))
    (tmp_path / "001-generation.reply.json").write_text("{")
    before = sorted(tmp_path.iterdir())
    assert [call.question for call in Ledger.read(tmp_path).calls] == ["002-generation"]
    assert sorted(tmp_path.iterdir()) == before
