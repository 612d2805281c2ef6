"""Wrong kernels: the emulator refuses each one and names the line."""

from __future__ import annotations

import re

import pytest
import torch
from tests.inline.metal.case import HEAD
from tests.inline.metal.groups import HELPERS
from tests.inline.metal.wrong import DOES_NOT_COMPILE, DOES_NOT_RUN, MUTANTS

from kforge import inline
from kforge.inline import CompileError, LaunchError, metal

RUNNING = HEAD + "\n".join(one.source for one in DOES_NOT_RUN)


@pytest.fixture(scope="module")
def library(build):
    return build(RUNNING)


@pytest.fixture(scope="module")
def mutants(build):
    return build(HEAD + HELPERS + "\n".join(source for source, _ in MUTANTS))


def line_of(error: Exception) -> int:
    found = re.search(r"kernel\.metal:(\d+)", str(error).splitlines()[0])
    assert found, f"no line in: {error}"
    return int(found[1])


@pytest.mark.parametrize("wrong", DOES_NOT_COMPILE, ids=str)
def test_does_not_compile(wrong):
    text = wrong.source if wrong.source.startswith("#include") else HEAD + wrong.source
    with pytest.raises(CompileError) as caught:
        inline.compile(text, "metal")
    assert wrong.message in str(caught.value)
    assert line_of(caught.value) in wrong.lines(text)


@pytest.mark.parametrize("wrong", DOES_NOT_RUN, ids=str)
@pytest.mark.parametrize("order", [0, 1, 5], ids=["forward", "backward", "shuffled"])
def test_does_not_run(library, wrong, order):
    with metal.options(order=order), pytest.raises(LaunchError) as caught:
        wrong.call(library)
    if order == 0:  # in another order, another thread is the first one that goes wrong
        assert wrong.message in str(caught.value)
    assert line_of(caught.value) in wrong.lines(RUNNING)


@pytest.mark.parametrize("case", [case for _, case in MUTANTS], ids=str)
def test_a_right_kernel_without_one_of_its_barriers_is_refused(mutants, case):
    with pytest.raises(LaunchError, match="race"):
        case.check(mutants)


@pytest.mark.parametrize("name", ["race_between_groups", "race_read_other_group"])
def test_races_between_groups_are_found_by_several_workers(library, name):
    wrong = next(one for one in DOES_NOT_RUN if one.name == name)
    for _ in range(20):
        with metal.options(workers=2), pytest.raises(LaunchError, match="of another threadgroup"):
            wrong.call(library)


def test_there_are_at_least_40_wrong_kernels():
    assert len(DOES_NOT_COMPILE) >= 40
    assert len(DOES_NOT_RUN) >= 35


def test_a_launch_after_a_fault_works(library):
    with pytest.raises(LaunchError):
        DOES_NOT_RUN[0].call(library)
    out = torch.zeros(64)
    library.oob_write(out, torch.ones(64), threads=64, group_size=64)
    assert out.eq(1).all()


def test_a_fault_leaves_the_tensors_as_they_were(library):
    out = torch.full((32,), -1.0)
    with pytest.raises(LaunchError):
        library.oob_write(out, torch.ones(64), threads=64, group_size=64)
    assert out.eq(-1).all()
