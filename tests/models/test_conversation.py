from hypothesis import given
from hypothesis import strategies as st

from kforge.models import Message, Request


def request(**changes) -> Request:
    message = Message(role="user", text="how fast? 1.23", fingerprint="how fast? M")
    return Request(**{"agent": "generation", "model": "a:b", "messages": (message,), "max_tokens": 10, **changes})


def test_identity_is_pinned():
    """Recorded exchanges are named by it: a change here orphans every recording."""
    assert request().identity == "9b7b8ec5b232001858e3"


@given(st.text(), st.text(min_size=1), st.integers(1, 9), st.floats(0, 2))
def test_identity_ignores_measurements_model_and_sampling(text, model, max_tokens, temperature):
    message = Message(role="user", text=text, fingerprint="how fast? M")
    other = request(messages=(message,), model=model, max_tokens=max_tokens, temperature=temperature)
    assert other.identity == request().identity


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=5)), max_size=4))
def test_identity_tells_questions_apart(turns):
    messages = tuple(Message(role=role, text="", fingerprint=text) for role, text in turns)
    same = messages == tuple(m.model_copy(update={"text": ""}) for m in request().messages)
    assert (request(messages=messages).identity == request().identity) == same
    assert request(agent="analysis", messages=messages).identity != request(messages=messages).identity


def test_the_same_words_for_another_attempt_are_another_question() -> None:
    assert len({request(step=step).identity for step in range(3)}) == 3
    assert request(step=0).identity == request().identity, "recordings of earlier versions name no step"
