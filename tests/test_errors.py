from __future__ import annotations

import inspect
import pickle
import re

import pytest

from kforge import errors
from kforge.errors import InputError, KforgeError, WaitingForReplies

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]


def tree_of(kind: type[Exception]) -> dict[str, dict]:
    """The classes below one, by name."""
    return {below.__name__: tree_of(below) for below in CLASSES if below.__bases__ == (kind,)}


def drawn_tree(docstring: str) -> dict[str, dict]:
    """The tree in a docstring: a name's depth is its column, four characters a level."""
    root: dict[str, dict] = {}
    path = [root]
    for indent, name in re.findall(r"^([│├└─ ]*)(\w+Error|[A-Z]\w+)(?:  .*)?$", docstring, re.MULTILINE):
        assert len(indent) % 4 == 0, name
        del path[len(indent) // 4 + 1 :]
        path[-1][name] = {}
        path.append(path[-1][name])
    return root


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawing = drawn_tree(errors.__doc__)
    assert drawing == {"KforgeError": tree_of(KforgeError)}
    assert str(drawing).count("{") - 1 == len(CLASSES), "every class hangs in the tree"


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_cross_process_borders_whole(kind: type[KforgeError]) -> None:
    error = kind(("a1", "b2")) if kind is WaitingForReplies else kind("what is wrong, and how to mend it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_is(kind: type[KforgeError]) -> None:
    assert kind.__doc__


def test_bad_input_is_told_apart_from_the_rest() -> None:
    below = {kind.__name__ for kind in CLASSES if issubclass(kind, InputError)}
    kinds = {"ProblemError", "PlatformError", "ModelError", "ProfileError", "RunError", "ServiceBusy"}
    assert below == {"InputError", *kinds}


def test_waiting_names_what_it_waits_for() -> None:
    assert str(WaitingForReplies(("a1",))) == "waiting for 1 reply: a1"
    assert str(WaitingForReplies(("a1", "b2"))) == "waiting for 2 replies: a1, b2"
