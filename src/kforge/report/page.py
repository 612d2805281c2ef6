"""One offline HTML file: style, script, rows and stories are inside it, and it may load nothing from elsewhere.

Text becomes HTML only by the templates, which escape it, and in `charts.svg` and `source_text`, which do the same.
`_finalize` makes hidden characters visible in everything that a template prints. The page's Content-Security-Policy
names the hashes of its own script and style, so that nothing else could run even if a text were not escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kforge import __version__, phrases
from kforge.metrics import roofline_share
from kforge.records import as_json
from kforge.report.charts import dots
from kforge.report.charts.palette import colour_class, page_css
from kforge.report.figures import attempts_chart, figures_of
from kforge.report.source_text import changed, highlighted
from kforge.report.summary import families, tiles
from kforge.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

    from kforge.report.views import ProblemRow, ReportView, Story

TEMPLATES = Path(__file__).parent / "templates"
"""The folder with the templates, the style sheet and the script."""


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else visible_lines(str(value))


@functools.cache
def environment() -> Environment:
    """Return the templates of reports and of the dashboard. What they print is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        clock=phrases.clock, duration=phrases.duration, price=phrases.price, brief=phrases.brief,
        highlighted=highlighted, colour=colour_class,
        document=lambda record: json.dumps(as_json(record), indent=2, ensure_ascii=False),
        words=lambda name: str(name).replace("_", " "),
    )  # fmt: skip
    made.globals.update(
        changed=changed, attempts_chart=attempts_chart, samples_chart=dots.samples, baselines=phrases.BASELINES
    )
    return made


def style_sheet() -> str:
    """Return the style of reports and of the dashboard."""
    return page_css() + (TEMPLATES / "style.css").read_text(encoding="utf-8")


def script() -> str:
    """Return the script of reports and of the dashboard."""
    return (TEMPLATES / "page.js").read_text(encoding="utf-8")


def render_story(story: Story) -> str:
    """Return the story of one problem as a piece of HTML."""
    return environment().get_template("_story.html.j2").render(story=story)


def render_page(view: ReportView, stories: Mapping[str, Story], notes: tuple[str, ...] = ()) -> str:
    """Return the whole file. `stories` holds the stories that it contains by the keys of their rows, and `notes` what
    its reader must know, a sentence each."""
    style, code = style_sheet(), script()
    told = {key: _packed(render_story(story)) for key, story in stories.items()}
    rows = [row_document(row, view, has_story=row.key in told) for row in view.problems]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            view=view,
            notes=notes,
            tiles=list(tiles(view)),
            families=families(view),
            figures=figures_of(view),
            style=Markup(style),  # noqa: S704 - ours
            script=Markup(code),  # noqa: S704 - ours
            style_hash=_hash(style),
            script_hash=_hash(code),
            rows=_inert(rows),
            stories=_inert(told),
            version=__version__,
        )
    )


def row_document(row: ProblemRow, view: ReportView, *, has_story: bool) -> dict[str, Any]:
    """Return what the script shows of one problem in the table. It holds text, which the script never takes for
    HTML."""
    result = row.result
    source = view.sources[row.source]
    document: dict[str, Any] = {
        "key": row.key,
        "name": visible(result.name),
        "family": visible(result.family),
        "source": visible(f"{source.name}, {row.platform}, {row.model}"),
        "finding": row.finding,
        "colour": colour_class(row.finding),
        "reason": visible(result.reason or ""),
        "attempts": result.attempts,
        "seconds": result.seconds,
        "tokens": result.usage.input_tokens + result.usage.output_tokens,
        "speedups": {
            each.baseline: {
                "median": each.speedup.median,
                "low": each.speedup.low,
                "high": each.speedup.high,
                **({"doubt": visible(each.doubt)} if each.doubt is not None else {}),
            }
            for each in result.comparisons
        },
        "story": has_story,
    }
    if result.usage.cost_usd is not None:
        document["usd"] = result.usage.cost_usd
    if result.is_correct and (share := roofline_share(result)) is not None:
        document["roofline"] = share
    return document


def _packed(text: str) -> str:
    """Return a text compressed, as characters that need no escape; the browser unpacks it when it is shown."""
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")


def _inert(data: object) -> Markup:
    """Return data as JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - escaped


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
