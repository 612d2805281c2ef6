"""A provider that fails for good stops a run, and loses nothing of it: asked again, the run goes on to its end."""

import os
import threading
from dataclasses import replace

import pytest
from tests.models.doubling import PROBLEM, PROGRAM

from kforge import platforms, problems
from kforge.agents import AnalysisAgent, GenerationAgent
from kforge.errors import ProviderError
from kforge.evaluation import Judge
from kforge.loop import RunLimits, Workshop, forge
from kforge.models import CallBudget, Exchange, ExchangedModel, Image, ModelSettings
from kforge.models.providers import Patience, ProviderModel
from kforge.records import EvaluationLimits, EvaluationPolicy
from kforge.search import strategy
from kforge.store import Header, RunFolder


@pytest.fixture
def judge(tmp_path):
    environment = {"PATH": os.environ["PATH"]}
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path / "cache",
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


@pytest.fixture
def run(judge, tmp_path):
    (tmp_path / "double.py").write_text(PROBLEM)
    problem = problems.load(tmp_path / "double.py")
    header = Header.new(
        problem=problem, workload=judge.describe(problem), platform="null", model="m", analyst="m", options={}
    )
    return RunFolder.create(tmp_path / "runs", header)


def workshop(server, run, judge, patience, **shown):
    model = ExchangedModel(ProviderModel.open(f"openai:tiny@{server.url}", {}, patience), Exchange(run.exchange))
    return Workshop(GenerationAgent(model, judge.platform), AnalysisAgent(model, judge.platform, **shown), judge)


def test_a_run_outlives_every_fault_of_its_provider(judge, run, server):
    hasty = Patience(attempts=2, timeout=0.5, first_wait=0.01, longest_wait=0.05)
    work = workshop(server, run, judge, hasty)
    gone = threading.Event()
    faults = {
        "timed out": lambda _: gone.wait(10),
        "rate limit": server.send(429, '{"error": {"message": "slow down"}}', headers={"Retry-After": "0"}),
        "garbage": server.send(200, "<html>not an answer</html>", "text/html"),
        "half an answer": server.cut,
    }
    for fault in faults.values():
        server.script = [fault]
        with run.writing(), pytest.raises(ProviderError, match="after 2 attempts") as caught:
            next(forge(run, work, RunLimits(2)))
        assert "\n" not in str(caught.value)
        assert run.attempts() == ()
        assert not list(run.exchange.glob("*.reply.json")), "what is no answer is not kept as one"
    gone.set()

    server.script = [server.say(PROGRAM[:60], finish="length"), server.say(PROGRAM)]
    server.bodies.clear()
    work = workshop(server, run, judge, Patience(attempts=1, timeout=60.0))
    with run.writing():
        (attempt,) = forge(run, work, RunLimits(1, replications=0))
    assert attempt.is_correct
    assert "cut off at its length limit" in attempt.remarks[0]
    assert len(server.bodies) == 2


def test_siblings_are_asked_for_at_once_and_each_answer_is_recorded_and_paid_once(judge, run, server):
    together = threading.Barrier(3)

    def when_all_have_asked(handler):
        together.wait(30)
        server.say(PROGRAM)(handler)

    server.script = [when_all_have_asked]
    work = workshop(server, run, judge, Patience(attempts=1, timeout=60.0))
    work = replace(work, search=strategy("best-of:3"), at_once=3)
    with run.writing():
        attempts = list(forge(run, work, RunLimits(3, replications=0)))
    assert [attempt.verdict.state for attempt in attempts] == ["correct"] * 3
    assert [each.name for each in Exchange(run.exchange).questions()] == [f"{n:03d}-generation" for n in (1, 2, 3)]
    assert len({attempt.requests for attempt in attempts}) == len(server.bodies) == run.outcome().usage.requests == 3


def test_with_a_budget_in_dollars_calls_are_made_one_by_one(judge, run, server):
    server.script = [server.say(PROGRAM)]
    settings = ModelSettings(price_in=0.0, price_out=1.0)
    provider = ProviderModel.open(f"openai:tiny@{server.url}", {}, Patience(attempts=1))
    # enough for one answer of the greatest length at a time, and for very many short ones
    budget = CallBudget(usd=1.5 * 32768 / 1e6)
    model = ExchangedModel(provider, Exchange(run.exchange), settings, budget=budget)
    work = Workshop(
        GenerationAgent(model, judge.platform),
        AnalysisAgent(model, judge.platform),
        judge,
        search=strategy("best-of:3"),
        at_once=3,
    )
    with run.writing():
        attempts = list(forge(run, work, RunLimits(3, replications=0, counts_cost=True)))
    assert (len(attempts), len(server.bodies)) == (3, 3)
    assert run.outcome().stopped == "3 iterations done"


RECOMMENDATION = """\
{"bottleneck": "memory", "action": "fuse", "rationale": "less", "evidence": "all of it", "expected_gain": "2x"}
"""


def test_a_run_shows_images_and_says_so_where_the_model_refuses_them(judge, run, server):
    server.script = [
        server.say(PROGRAM),
        server.send(400, '{"error": {"message": "image_url is only supported by certain models"}}'),
        server.say(RECOMMENDATION),
        server.say(PROGRAM.replace("2 * x", "x * 2")),
    ]
    screenshot = Image.of(b"\xff\xd8\xff a screenshot")
    work = workshop(server, run, judge, Patience(attempts=1), profile_as="both", images=[screenshot])
    with run.writing():
        first, second = forge(run, work, RunLimits(2, replications=0, sanitize=False, roofline_share=9.0))
    seen, unseen = (body["messages"][-1]["content"] for body in server.bodies[1:3])
    assert [part["type"] for part in seen] == ["text", "image_url", "image_url"]
    assert seen[1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert isinstance(unseen, str)
    assert second.recommendation.action == "fuse"
    assert [("images_not_seen" in attempt.evaluation.labels) for attempt in (first, second)] == [False, True]
    assert len(second.requests) == 3
    assert len(list(run.exchange.glob("*.image-?.*"))) == 2
