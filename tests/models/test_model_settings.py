"""Settings of a model: as text, in a request, on the wire, and what is said where a provider does not take one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import PromptTooLong
from kforge.models import Exchange, ModelSettings, ensemble, open_model
from kforge.models.names import is_same_model
from kforge.models.provider_settings import unused_settings, wire_settings
from kforge.models.providers import ProviderModel
from kforge.models.tokens import likely_tokens, most_tokens

ALL = "effort=high,temperature=0.5,seed=7,context=9000,max_tokens=500,price_in=1.0,price_out=2.0"


def test_settings_are_read_and_written_as_one_text():
    settings = ModelSettings.parse(ALL)
    assert str(settings) == ALL
    assert settings.sent == ("effort", "temperature", "seed")
    assert str(ModelSettings()) == ""


@given(
    st.builds(
        ModelSettings,
        effort=st.sampled_from([None, "none", "low", "max"]),
        temperature=st.none() | st.floats(0, 2),
        seed=st.none() | st.integers(0, 2**63 - 1),
        context=st.none() | st.integers(1, 10**9),
    )
)
def test_any_settings_survive_their_text(settings):
    assert ModelSettings.parse(str(settings)) == settings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("efort=high", "'efort=high' is not a setting; write NAME=VALUE with one of effort, temperature, seed,"),
        ("effort", "'effort' is not a setting"),
        ("effort=huge", "'effort': must be 'none', 'minimal',"),
        ("temperature=3", "'temperature': must be at most 2, not '3'"),
        ("seed=-1", "'seed': it must be a count"),
        ("context=0", "'context': it must be at least 1"),
        ("seed=1,seed=2", "'seed' is given twice"),
        ("price_in=1", "give both price_in and price_out"),
    ],
)
def test_a_bad_setting_is_told_in_words(text, told):
    with pytest.raises(ValueError, match="^" + re.escape(told)) as caught:
        ModelSettings.parse(text)
    assert "\n" not in str(caught.value)


def test_settings_reach_a_compatible_server_and_the_run(server, ask, tmp_path):
    server.script = [server.say("hello", model="tiny")]
    settings = ModelSettings.parse("effort=high,temperature=0.5,seed=7,max_tokens=50")
    model = open_model(f"openai:tiny@{server.url}", exchange=tmp_path, keys={}, settings=settings)
    assert model.remark == ""
    assert model.complete(ask(model=model.name)).notes == ()
    (body,) = server.bodies
    assert (body["reasoning_effort"], body["temperature"], body["seed"]) == ("high", 0.5, 7)
    assert 50 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    ((request, _),) = Exchange(tmp_path).answered()
    assert (request.effort, request.temperature, request.seed, request.max_tokens) == ("high", 0.5, 7, 50)


def client_of(name):
    stem = name.partition(":")[0].upper().replace("-CHAT", "")
    return ProviderModel.open(name, {f"{stem}_API_KEY": "x"})._client


@pytest.mark.parametrize(
    ("name", "given", "unused"),
    [
        ("openai:gpt-4o", "temperature=0.5,seed=7", ("seed",)),
        ("openai-chat:gpt-4o", "temperature=0.5,seed=7", ()),
        ("openai:o3", "effort=high,temperature=0.5", ("temperature",)),
        ("anthropic:claude-sonnet-4-5", "effort=high,seed=7", ("seed",)),
        ("google:gemini-2.0-flash", "effort=high,temperature=1", ("effort",)),
        ("google:gemini-2.5-pro", "effort=low,temperature=0.5,seed=7", ()),
        ("deepseek:deepseek-chat", "temperature=0.5,seed=7", ()),
        ("openrouter:anthropic/claude-sonnet-4.5", "effort=low,seed=7", ()),
    ],
)
def test_what_a_provider_does_not_take_is_known_before_the_call(name, given, unused, ask):
    client, settings = client_of(name), ModelSettings.parse(given)
    assert unused_settings(settings, client) == unused
    sent = wire_settings(settings.applied_to(ask()), client, 1.0)
    for each in ("temperature", "seed"):
        assert (each in sent) == (each in settings.sent and each not in unused)
    efforts = {"thinking", "openai_reasoning_effort"} & set(sent)
    assert bool(efforts) == ("effort" in settings.sent and "effort" not in unused)


@pytest.mark.parametrize("name", ["exchange", "scripted"])
def test_a_model_without_a_provider_takes_no_settings_and_says_so(name, ask, tmp_path):
    (tmp_path / "answers.md").write_text("hello")
    name = f"scripted:{tmp_path}/answers.md" if name == "scripted" else name
    settings = ModelSettings.parse("effort=high,seed=7,max_tokens=50")
    model = open_model(name, exchange=tmp_path / "exchange", keys={}, settings=settings)
    assert model.remark == f"{name} does not take effort and seed, and is asked without"
    if name != "exchange":
        assert model.complete(ask(model=name)).notes == (model.remark,)
        assert Exchange(tmp_path / "exchange").notes() == [model.remark]


def test_a_prompt_beyond_the_context_limit_is_not_asked(server, ask, tmp_path):
    model = open_model(f"openai:tiny@{server.url}", exchange=tmp_path, keys={}, settings=ModelSettings(context=2000))
    with pytest.raises(PromptTooLong, match="does not fit into the context limit of 2000 tokens") as caught:
        model.complete(ask("word " * 2000, model=model.name))
    assert "\n" not in str(caught.value)
    assert server.bodies == []
    assert list(tmp_path.iterdir()) == []


def test_an_answer_gets_the_room_that_the_context_limit_leaves(ask):
    request = ask("word " * 300).model_copy(update={"max_tokens": 5000})
    applied = ModelSettings(context=2000).applied_to(request)
    assert applied.max_tokens == 2000 - likely_tokens(request)
    assert applied.identity == request.identity
    assert likely_tokens(request) < most_tokens(request)


def test_another_model_than_the_one_asked_is_reported(server, ask, tmp_path):
    server.script = [server.say("hello", model="tiny-2026-01-31"), server.say("hello", model="small")]
    model = open_model(f"openai:tiny@{server.url}", exchange=tmp_path, keys={})
    assert model.complete(ask(model=model.name)).notes == ()
    told = f"another model answered: {model.name} was asked, and the reply is by 'small'"
    assert model.complete(ask("again?", model=model.name)).notes == (told,)
    assert Exchange(tmp_path).notes() == [told]


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("openai:gpt-5", "gpt-5", True),
        ("openai:gpt-5", "gpt-5-2025-08-07", True),
        ("openai:gpt-5", "gpt-5-mini", False),
        ("openai:gpt-5", "gpt-5-mini-2025-08-07", False),
        ("openai:gpt-4-2024-01-01", "gpt-4-2025-01-01", False),
        ("anthropic:claude-x-latest", "claude-x-20250929", True),
        ("google:gemini-2.5-pro", "models/gemini-2.5-pro", True),
        ("openrouter:vendor/some", "vendor/some:latest", True),
        ("openai:tiny@http://host:1/v1", "tiny", True),
        ("openai:tiny@http://host:1/v1", "", True),
        ("openai:tiny@http://host:1/v1", "gpt-3.5-turbo", False),
    ],
)
def test_a_dated_snapshot_is_the_same_model(asked, answered, same):
    assert is_same_model(asked, answered) is same


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("openai:gpt-5", ["openai:gpt-5"]),
        ("openai:gpt-5,anthropic:claude-x", ["openai:gpt-5", "anthropic:claude-x"]),
        ("builtin, openai:tiny@http://host:1/v1 ,exchange", ["builtin", "openai:tiny@http://host:1/v1", "exchange"]),
        ("replay:folder,with,commas", ["replay:folder,with,commas"]),
        ("", [""]),
    ],
)
def test_commas_separate_the_models_of_an_ensemble(text, names):
    assert ensemble(text) == tuple(names)
