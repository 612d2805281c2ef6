import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.inline import LaunchError, geometry

LIMITS = geometry.Limits(group=(1024, 1024, 64), group_threads=1024, groups=(2**31 - 1, 65535, 65535))


def cut(threads, group_size):
    size = geometry.group("f", group_size, LIMITS)
    return geometry.grid("f", threads, size, LIMITS), size


def test_threads_are_rounded_up_to_whole_groups():
    assert cut(1000, 256) == ((4, 1, 1), (256, 1, 1))
    assert cut((1000, 7), (32, 2)) == ((32, 4, 1), (32, 2, 1))
    assert cut([5, 1, 3], [4, 1, 2]) == ((2, 1, 2), (4, 1, 2))
    assert cut(0, 256) == ((0, 1, 1), (256, 1, 1))


@given(st.integers(0, 10**9), st.integers(1, 1024))
def test_every_thread_has_a_group_and_no_group_is_idle(threads, size):
    (groups, *_), (width, *_) = cut(threads, size)
    assert groups * width >= threads
    assert (groups - 1) * width < threads or groups == 0


@pytest.mark.parametrize(
    ("threads", "group_size", "message"),
    [
        (-1, 256, "f: threads must be one to three numbers from 0 on, got -1"),
        (1.5, 256, "f: threads must be one to three numbers from 0 on, got 1.5"),
        ((1, 2, 3, 4), 256, "f: threads must be one to three numbers from 0 on, got (1, 2, 3, 4)"),
        (None, 256, "f: threads must be one to three numbers from 0 on, got None"),
        (1, 0, "f: group_size must be one to three positive numbers, got 0"),
        (1, (), "f: group_size must be one to three positive numbers, got ()"),
        (1, 2048, "f: a group has at most 1024 threads, and (1024, 1024, 64) in its dimensions, got group_size=2048"),
        (
            1,
            (1, 1, 65),
            "f: a group has at most 1024 threads, and (1024, 1024, 64) in its dimensions, got group_size=(1, 1, 65)",
        ),
        (
            (1, 65536),
            1,
            "f: a launch has at most (2147483647, 65535, 65535) groups, but threads=(1, 65536) and "
            "group_size=(1, 1, 1) make (1, 65536, 1); let the kernel loop over its elements, or use another dimension",
        ),
    ],
)
def test_what_does_not_fit_is_one_clear_line(threads, group_size, message):
    with pytest.raises(LaunchError) as caught:
        cut(threads, group_size)
    assert str(caught.value) == message
