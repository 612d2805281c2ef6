"""What a fork inherits of limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.platforms import inherited_limits

if TYPE_CHECKING:
    from pathlib import Path


def test_control_groups_count_by_their_limits(tmp_path: Path) -> None:
    """Not by their paths: every terminal has one of its own."""
    for name in ("user/first", "user/second", "user/deeper/third", "limited/fourth", "cpu/fifth"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cpu.max").write_text("max 100000\n")
    (tmp_path / "limited" / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "cpu" / "fifth" / "cpu.cfs_quota_us").write_text("50000\n")

    def limits(line: str) -> list[str]:
        (tmp_path / "own").write_text(f"{line}\n")
        return inherited_limits.of_groups(tmp_path / "own", tmp_path)

    assert limits("0::/user/first") == limits("0::/user/second") == limits("0::/user/deeper/third") == []
    assert limits("0::/limited/fourth") == ["cpu.max 50000 100000"]
    assert limits("1:cpu:/fifth") == ["cpu.cfs_quota_us 50000"]
