"""Small kernels that the emulator must run to the result that torch has."""

from __future__ import annotations

from functools import cache

import pytest
from tests.inline.metal import functions, groups, programs, vectors
from tests.inline.metal.case import HEAD, Case

from kforge.inline import metal

BATCHES: dict[str, tuple[str, list[Case]]] = {
    name: (HEAD + head + "\n".join(case.source for case in cases), cases)
    for name, head, cases in (
        ("math", "", functions.MATH),
        ("integers", "", functions.INTEGERS + functions.SMALL),
        ("vectors", "", vectors.VECTORS),
        ("attributes", "", groups.ATTRIBUTES),
        ("barriers", groups.HELPERS, groups.BARRIERS + groups.MATRICES),
        ("simd", "", groups.SIMD),
        ("atomics", "", groups.ATOMICS),
    )
}
BATCHES["language"] = (programs.LANGUAGE_SOURCE, programs.LANGUAGE)
BATCHES["neural"] = (programs.NEURAL_SOURCE, programs.NEURAL)
ALL = [(batch, case) for batch, (_, cases) in BATCHES.items() for case in cases]


@pytest.fixture(scope="module")
def library(build):
    """The library of a batch: many kernels are one compilation."""
    return cache(lambda batch: build(BATCHES[batch][0]))


@pytest.mark.parametrize(("batch", "case"), ALL, ids=[str(case) for _, case in ALL])
def test_result_is_torchs(library, batch, case):
    case.check(library(batch))


def test_there_are_at_least_150_kernels():
    assert len({case.name for _, case in ALL}) == len(ALL) >= 150


@pytest.mark.parametrize("order", [1, 7])
def test_other_orders_of_threads_change_nothing(library, order):
    with metal.options(order=order):
        for batch in ("barriers", "simd", "neural"):
            for case in BATCHES[batch][1]:
                case.check(library(batch))


def test_several_workers_change_nothing(library):
    with metal.options(workers=3):
        for case in BATCHES["neural"][1]:
            case.check(library("neural"))
