"""Peak rates: measured when they must be, and never lowered by a second measurement."""

from collections.abc import Callable
from pathlib import Path

from kforge.evaluation.referee.device_peaks import calibrated
from kforge.evaluation.referee.measurement_cache import Measurements
from kforge.records import Peaks

WHERE = ("platform", "device", "1")


def peaks(rate: float, *, quiet: bool = True) -> Peaks:
    return Peaks(device="d", bytes_per_second=rate, flops_per_second=1 / rate, quiet=quiet)


def asked(folder: Path, measure: Callable[[], Peaks], *, fresh: bool = False) -> Peaks:
    return calibrated(measure, Measurements(folder), WHERE, fresh=fresh, patience=0.0)


def test_quiet_rates_are_not_measured_again(tmp_path: Path) -> None:
    Measurements(tmp_path).put(peaks(2.0), *WHERE)

    def never() -> Peaks:
        raise AssertionError

    assert asked(tmp_path, never) == peaks(2.0)


def test_a_second_measurement_only_raises_rates(tmp_path: Path) -> None:
    """Cause: the bandwidth of one machine was told as 5 GB/s, and as 22 GB/s half an hour later."""
    assert asked(tmp_path, lambda: peaks(2.0)).bytes_per_second == 2.0
    lower = asked(tmp_path, lambda: peaks(1.0), fresh=True)
    assert (lower.bytes_per_second, lower.flops_per_second) == (2.0, 1.0)
    assert asked(tmp_path, lambda: peaks(4.0), fresh=True).bytes_per_second == 4.0
    assert asked(tmp_path, lambda: peaks(3.0)).bytes_per_second == 4.0


def test_rates_of_a_busy_machine_are_kept_too(tmp_path: Path) -> None:
    """So that the next process tells the same, or more."""
    Measurements(tmp_path).put(peaks(5.0, quiet=False), *WHERE)
    assert asked(tmp_path, lambda: peaks(1.0)).bytes_per_second == 5.0
    assert asked(tmp_path, lambda: peaks(9.0), fresh=True).bytes_per_second == 9.0
