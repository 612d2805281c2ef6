"""NVIDIA's profilers, where there is none: what is asked for, and why it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge.platforms import NoProfiler, Profiler
from kforge.platforms.nvidia import nsight
from kforge.profiling import nsight_compute

if TYPE_CHECKING:
    from pathlib import Path


def test_every_metric_that_is_asked_for_is_read_and_the_other_way_round() -> None:
    before, after = nsight_compute._STALL
    read = {
        nsight_compute._DURATION, nsight_compute.RESIDENT, *nsight_compute.FIGURES, *nsight_compute.PIPES,
        *(name for parts in (*nsight_compute.SUMS.values(), *nsight_compute.RATIOS.values()) for name in parts),
        *(f"{before}{stall}{after}" for stall in nsight_compute.STALLS),
    }  # fmt: skip
    comes_with_every_launch = {name for name in read if name.startswith("launch__")}
    assert set(nsight.METRICS) == read - comes_with_every_launch
    assert len(set(nsight.METRICS)) == len(nsight.METRICS) <= 32


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A PATH of these tools and nothing else, and a driver with these parameters."""

    def make(*names: str, parameters: str | None = None) -> Path:
        for name in names:
            tool = tmp_path / name
            tool.write_text("#!/bin/sh\n")
            tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        file = tmp_path / "params"
        if parameters is not None:
            file.write_text(parameters)
        monkeypatch.setattr(nsight, "_PARAMETERS", file)
        return tmp_path

    return make


def test_the_rungs_where_everything_is_there(tools) -> None:
    place = tools("ncu", "nsys", parameters="RmProfilingAdminOnly: 0\n")
    counting, timeline = nsight.find()
    assert isinstance(counting, Profiler)
    assert isinstance(timeline, Profiler)
    assert counting.wrapper[0] == str(place / "ncu")
    assert timeline.wrapper[-1] == str(place / "nsys")
    assert "{" not in timeline.wrapper[2], "every placeholder is filled in"


def test_a_driver_that_counts_for_administrators_only_is_not_tried(tools) -> None:
    tools("ncu", parameters="RmLogonRC: 1\nRmProfilingAdminOnly: 1\nResmanDebugLevel: 4294967295\n")
    counting = nsight.find()[0]
    assert counting == NoProfiler("Nsight Compute", nsight.RESTRICTED)


def test_a_driver_that_does_not_say_is_tried(tools) -> None:
    tools("ncu")
    assert isinstance(nsight.find()[0], Profiler)


def test_a_machine_without_them(tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools()
    monkeypatch.setattr(nsight, "_ROOT", tmp_path)
    reasons = [rung.reason for rung in nsight.find() if isinstance(rung, NoProfiler)]
    assert reasons == ["ncu is not installed", "nsys is not installed"]


def test_they_are_found_where_their_packages_put_them(tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools()
    monkeypatch.setattr(nsight, "_ROOT", tmp_path)
    for version in ("2024.1.1", "2025.3.1"):
        place = tmp_path / "opt/nvidia/nsight-compute" / version / "ncu"
        place.parent.mkdir(parents=True)
        place.touch()
    assert nsight.find_command("ncu") == str(place)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
            "NVIDIA GPU Performance Counters on the target device 0. For instructions see …\n",
            nsight.RESTRICTED,
        ),
        ("==ERROR== Failed to connect. \n", "Failed to connect."),
        ("==ERROR== The application returned an error code (1).\n", None),
        ("==PROF== Disconnected\n", None),
    ],
)
def test_what_a_profiler_says_about_itself(output: str, reason: str | None) -> None:
    assert nsight.why_not(output) == reason
