import pytest

from kforge.inline import launches
from kforge.inline.opencl import rates as opencl
from kforge.inline.sycl import rates as sycl
from kforge.inline.webgpu import rates as webgpu


@pytest.mark.parametrize("module", [opencl, sycl, webgpu])
def test_kernel_that_is_timed_for_rates_makes_the_steps_that_are_counted(module, monkeypatch):
    """Cause: the sources held the number 256 of their own, so a change of `launches.STEPS` made the rates wrong."""
    monkeypatch.setattr(launches, "STEPS", 77)
    source = launches.with_steps(module._SOURCE)
    assert source.count("77") == 1
    assert "STEPS" not in source
    assert "256" not in source


def test_launches_are_recorded_only_inside_the_block():
    launches.note("before", 0, 1)
    assert not launches.recording()
    with launches.recorded() as found:
        assert launches.recording()
        launches.note("inside", 5, 9)
    launches.note("after", 10, 11)
    assert found == [("inside", 5, 9)]
    assert not launches.recording()


def test_nested_recordings_both_see_a_launch():
    with launches.recorded() as outer:
        launches.note("one", 0, 1)
        with launches.recorded() as inner:
            launches.note("two", 2, 3)
        launches.note("three", 4, 5)
    assert [one.name for one in outer] == ["one", "two", "three"]
    assert [one.name for one in inner] == ["two"]
