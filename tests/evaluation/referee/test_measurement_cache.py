"""Measurements: lasting ones outlive the process, doubtful ones the question but not the sitting."""

from pathlib import Path

from kforge.evaluation.referee.measurement_cache import Measurements
from kforge.records import Peaks

PEAKS = Peaks(device="d", bytes_per_second=1.0, flops_per_second=2.0)


def test_a_lasting_one_is_known_to_the_next_sitting(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d", "1", lasting=True)
    assert Measurements(tmp_path).get(Peaks, "d", "1") == PEAKS
    assert Measurements(tmp_path).get(Peaks, "d", "2") is None


def test_one_that_an_earlier_kforge_wrote_is_known(tmp_path: Path) -> None:
    """Which did not ask a device what its wires carry: then the measured peak is all that is known."""
    Measurements(tmp_path).put(PEAKS, "d", lasting=True)
    (file,) = tmp_path.rglob("*.json")
    assert "wired" not in file.read_text()
    known = Measurements(tmp_path).get(Peaks, "d")
    assert known is not None
    assert known.most_bytes_per_second == known.bytes_per_second
    assert known.model_copy(update={"wired_bytes_per_second": 5.0}).most_bytes_per_second == 5.0


def test_a_doubtful_one_is_known_to_this_sitting_only(tmp_path: Path) -> None:
    here = Measurements(tmp_path)
    here.put(PEAKS, "d", lasting=False)
    assert here.get(Peaks, "d") == PEAKS
    assert Measurements(tmp_path).get(Peaks, "d") is None


def test_one_of_the_cache_that_is_not_believed_is_measured_again(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d", lasting=True)
    assert Measurements(tmp_path).get(Peaks, "d", believe=lambda _: False) is None


def test_a_damaged_one_is_measured_again(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d", lasting=True)
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert Measurements(tmp_path).get(Peaks, "d") is None
    Measurements(tmp_path).put(PEAKS, "d", lasting=True)
    assert Measurements(tmp_path).get(Peaks, "d") == PEAKS
