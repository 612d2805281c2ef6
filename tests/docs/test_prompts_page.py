"""The page of prompts is what its command writes."""

from __future__ import annotations

from tests.docs.checking import ROOT

from kforge.models import Exchange
from kforge.prompts import fenced

GOLDEN = ROOT / "tests" / "prompts" / "golden" / "repair_of_a_rewrite.txt"


def test_the_page_shows_the_recorded_prompts_and_the_golden_repair() -> None:
    page = (ROOT / "docs" / "prompts.md").read_text("utf-8")
    first, analysis, rewrite = (
        each.request for each in Exchange(ROOT / "examples" / "softmax_scale" / "exchange").questions()[:3]
    )
    texts = [
        *(message.text for message in (*first.messages, *analysis.messages, rewrite.messages[1])),
        GOLDEN.read_text(),
    ]
    for text in texts:
        assert fenced(text.strip()) in page, "python benchmarks/prompts_page.py writes the page anew"
    assert page.count("\n## ") >= len(texts)
