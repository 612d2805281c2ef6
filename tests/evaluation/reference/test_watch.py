"""The watch over slow references: they are heard of, and end in one line."""

from __future__ import annotations

import threading

from kforge.evaluation.reference.watch import ReferenceWatch

WAIT = 10.0


def test_a_slow_reference_is_heard_of() -> None:
    heard, news = list[str](), threading.Event()

    def tell(text: str) -> None:
        heard.append(text)
        if "double precision" in text:
            news.set()

    reference_watch = ReferenceWatch(tell, heard.append, news=0.01)
    reference_watch.say("checking correctness: case 3 of 20")
    with reference_watch.over("softmax"):
        assert news.wait(WAIT)
    assert heard[0] == "checking correctness: case 3 of 20"
    assert heard[1] == "checking correctness: case 3 of 20, the reference in double precision, 0 s so far"


def test_a_quick_one_is_not() -> None:
    heard = list[str]()
    with ReferenceWatch(heard.append, heard.append, news=WAIT).over("softmax"):
        pass
    assert not heard


def test_one_that_passes_its_deadline_ends_the_evaluation() -> None:
    reasons, ended = list[str](), threading.Event()

    def give_up(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    reference_watch = ReferenceWatch(lambda _: None, give_up, news=0.01, deadline=0.02)
    with reference_watch.over("convolution"):
        assert ended.wait(WAIT)
    assert reasons[0].startswith("convolution: the reference in double precision takes more than 0.02 s for one case")


def test_many_that_are_slow_end_it_together() -> None:
    reasons, ended = list[str](), threading.Event()

    def give_up(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    reference_watch = ReferenceWatch(lambda _: None, give_up, news=0.01, total=0.0)
    with reference_watch.over("convolution"):
        assert ended.wait(WAIT)
    assert "for the cases so far" in reasons[0]
