"""The cache of measurements: kept on disk for other processes, and refused by the caller if too old."""

from pathlib import Path

from kforge.evaluation.referee.measurement_cache import Measurements
from kforge.records import Peaks

PEAKS = Peaks(device="d", bytes_per_second=1.0, flops_per_second=2.0)


def test_record_is_known_to_the_next_process(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d", "1")
    assert Measurements(tmp_path).get(Peaks, "d", "1") == PEAKS
    assert Measurements(tmp_path).get(Peaks, "d", "2") is None


def test_one_that_an_earlier_kforge_wrote_is_known(tmp_path: Path) -> None:
    """Which did not ask a device what its wires carry: then the measured peak is all that is known."""
    Measurements(tmp_path).put(PEAKS, "d")
    (file,) = tmp_path.rglob("*.json")
    assert "wired" not in file.read_text()
    known = Measurements(tmp_path).get(Peaks, "d")
    assert known is not None
    assert known.most_bytes_per_second == known.bytes_per_second
    assert known.model_copy(update={"wired_bytes_per_second": 5.0}).most_bytes_per_second == 5.0


def test_record_on_disk_is_not_returned_if_it_is_not_believed(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d")
    assert Measurements(tmp_path).get(Peaks, "d", believe=lambda _: False) is None


def test_record_of_this_process_is_not_returned_if_it_is_not_believed(tmp_path: Path) -> None:
    """Cause: only records on disk were checked, so a failed baseline never expired in the process that measured it."""
    here = Measurements(tmp_path)
    here.put(PEAKS, "d")
    assert here.get(Peaks, "d") == PEAKS
    assert here.get(Peaks, "d", believe=lambda _: False) is None


def test_record_of_this_process_is_preferred_while_it_is_believed(tmp_path: Path) -> None:
    """So one run uses one measurement, also if another process has measured again meanwhile."""
    here, newer = Measurements(tmp_path), PEAKS.model_copy(update={"bytes_per_second": 9.0})
    here.put(PEAKS, "d")
    Measurements(tmp_path).put(newer, "d")
    assert here.get(Peaks, "d") == PEAKS
    assert here.get(Peaks, "d", believe=lambda found: found.bytes_per_second > 5.0) == newer


def test_a_damaged_one_is_measured_again(tmp_path: Path) -> None:
    Measurements(tmp_path).put(PEAKS, "d")
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert Measurements(tmp_path).get(Peaks, "d") is None
    Measurements(tmp_path).put(PEAKS, "d")
    assert Measurements(tmp_path).get(Peaks, "d") == PEAKS
