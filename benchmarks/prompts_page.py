"""Writes docs/prompts.md: one prompt of each kind, as a recorded run asked it.

    python benchmarks/prompts_page.py

The repair is a golden prompt of the tests, because the recorded run has no failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kforge.models import Exchange
from kforge.prompts import fenced

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "prompts.md"
RECORDING = ROOT / "examples" / "softmax_scale" / "exchange"
REPAIR = ROOT / "tests" / "prompts" / "golden" / "repair_of_a_rewrite.txt"
HEAD = """\
# Prompts

One prompt of each kind. All but the repair are from the recorded run `examples/softmax_scale`, on two cores of a
Xeon VM; the repair is a golden prompt of the tests, with a short program. `python benchmarks/prompts_page.py` writes
this page. What is measured, such as the device's facts, times and profiles, is no part of a question's identity.
[models.md](models.md#prompts) says how to see the prompts of your own problem.
"""


def page() -> str:
    """Return the text of the page."""
    first, analysis, rewrite = (each.request for each in Exchange(RECORDING).questions()[:3])
    parts = {
        "The generation agent: system": first.messages[0].text,
        "The first question": first.messages[1].text,
        "The performance analysis agent: system": analysis.messages[0].text,
        "The analysis of a correct program": analysis.messages[1].text,
        "The rewrite along a recommendation": rewrite.messages[1].text,
        "The repair of a rewrite": REPAIR.read_text("utf-8"),
    }
    return HEAD + "".join(f"\n## {title}\n\n{fenced(text.strip())}\n" for title, text in parts.items())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit(0)
