"""Budgets are hard: a call that could pass one is not made."""

import threading
import time

import pytest

from kforge.errors import BudgetSpent
from kforge.models import CallBudget, Exchange, Ledger, ModelSettings, Reply, open_model
from kforge.models.prices import Price
from kforge.models.tokens import most_tokens
from kforge.records import Usage

OWN = ModelSettings(price_in=1000.0, price_out=2000.0)


@pytest.fixture
def opened(server, tmp_path):
    """Opens a model on the server with this budget, at a tenth of a cent for a token in and double for a token out."""

    def make(budget, settings=OWN):
        return open_model(f"openai:tiny@{server.url}", exchange=tmp_path, keys={}, settings=settings, budget=budget)

    return make


def dearest(request):
    return (most_tokens(request) * 1000.0 + request.max_tokens * 2000.0) / 1e6


def test_no_call_begins_that_could_cost_more_than_is_left(server, opened, ask, tmp_path):
    server.script = [server.say("one")]
    first, second = ask("a"), ask("b")
    real = 11 * 0.001 + 7 * 0.002
    opened(CallBudget(usd=dearest(first) + real)).complete(first)
    with pytest.raises(BudgetSpent, match=r"^budget spent: the next call could cost \$\d.* are left$") as caught:
        opened(CallBudget(usd=dearest(second) + real / 2)).complete(second)
    assert "\n" not in str(caught.value)
    assert len(server.bodies) == 1
    assert len(Ledger.read(tmp_path).calls) == 1
    opened(CallBudget(usd=dearest(second) + real)).complete(second)
    assert Ledger.read(tmp_path).usage.cost_usd == pytest.approx(2 * real)


def test_no_call_begins_that_could_take_more_tokens_than_are_left(server, opened, ask):
    server.script = [server.say("one")]
    request = ask("a")
    most = most_tokens(request) + request.max_tokens
    with pytest.raises(BudgetSpent, match=f"could take {most} tokens, and {most - 1} of {most - 1} are left"):
        opened(CallBudget(tokens=most - 1), ModelSettings()).complete(request)
    assert server.bodies == []
    opened(CallBudget(tokens=most), ModelSettings()).complete(request)
    with pytest.raises(BudgetSpent, match=f"and {most - 18} of {most} are left"):
        opened(CallBudget(tokens=most), ModelSettings()).complete(ask("b"))


def test_a_recorded_answer_needs_no_budget(server, opened, ask):
    server.script = [server.say("one")]
    opened(CallBudget()).complete(ask())
    assert opened(CallBudget(usd=1e-9, tokens=1, minutes=1, ends=time.monotonic())).complete(ask()).text == "one"


def test_an_answer_without_token_counts_counts_as_the_most_that_it_can_be(tmp_path, ask):
    exchange, request = Exchange(tmp_path), ask("a")
    exchange.write_reply(request, Reply(text="x", usage=Usage(requests=1), model="m", finish="stop"))
    most = most_tokens(request) + request.max_tokens
    budget, other = CallBudget(tokens=2 * most - 1), ask("b")
    with pytest.raises(BudgetSpent, match=f"and {most - 1} of"), budget.reserved(other, Price("m:m", OWN), exchange):
        pass
    with CallBudget(tokens=2 * most).reserved(other, Price("m:m", OWN), exchange):
        pass


def test_calls_in_flight_count_until_they_are_answered(tmp_path, ask):
    budget, exchange, price = CallBudget(usd=dearest(ask("a")) * 1.5), Exchange(tmp_path), Price("m:m", OWN)
    with (
        budget.reserved(ask("a"), price, exchange),
        pytest.raises(BudgetSpent),
        budget.reserved(ask("b"), price, exchange),
    ):
        pass
    with budget.reserved(ask("b"), price, exchange):
        pass


def test_a_budget_in_dollars_needs_a_price(tmp_path, ask):
    unpriced = Price("openai:nobody-knows-this", ModelSettings())
    with (
        pytest.raises(BudgetSpent, match="the price of openai:nobody-knows-this is not known"),
        CallBudget(usd=1.0).reserved(ask(), unpriced, Exchange(tmp_path)),
    ):
        pass


def test_an_answer_is_not_waited_for_longer_than_the_minutes(server, opened, ask):
    gone = threading.Event()
    server.script = [lambda _: gone.wait(20)]
    # long enough for the question to reach the server on a busy machine
    budget = CallBudget(minutes=0.01, ends=time.monotonic() + 4)
    try:
        with pytest.raises(BudgetSpent, match=r"budget spent: 0\.01 minutes are over"):
            opened(budget).complete(ask())
    finally:
        gone.set()
    assert len(server.bodies) == 1
    assert budget.seconds_left == 0.0


def test_time_in_which_a_run_waited_for_others_is_added_to_its_minutes():
    waited = [0.0]
    budget = CallBudget(minutes=1, ends=time.monotonic() - 1, waited=lambda: waited[0])
    with pytest.raises(BudgetSpent):
        budget.check_time()
    waited[0] = 1000.0
    budget.check_time()
