from kforge.inline import launches


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
