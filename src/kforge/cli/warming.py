"""`warm`: keeps torch loaded, so that other commands start at once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import say
from kforge.run_options import choose_model
from kforge.session import open_judge, platform_at_hand, usable_platform

if TYPE_CHECKING:
    from pathlib import Path


def serve(platform: str, platform_dirs: list[Path], *, json: bool) -> int:
    """Serve until Ctrl-C, which is the normal way to end, and return the exit status."""
    chosen = settings.load()
    # the platform that `forge` would choose, since its commands will use these processes
    platform = platform or platform_at_hand(chosen, platform_dirs, model=choose_model("", chosen))
    usable = usable_platform(platform, chosen, platform_dirs)

    def ready() -> None:
        if json:
            documents.print_json({"platform": usable.name, "warm": True})
        else:
            say(f"commands for {usable.name} start from here now; Ctrl-C ends it")

    with open_judge(usable, chosen) as judge, suppress(KeyboardInterrupt):
        judge.share(ready)
    return 0
