"""Colours of charts and pages, as CSS variables for light and dark screens, and as plain values for papers."""

from __future__ import annotations

import re

LIGHT = {
    "page": "#fbfbf9",
    "panel": "#ffffff",
    "ink": "#1d2126",
    "muted": "#5b646d",
    "grid": "#e6e8ea",
    "axis": "#9aa2a9",
    "accent": "#1f5f99",
    "eager": "#1f6fb2",
    "compile": "#c8641b",
    "fastest": "#4d555d",
    "correct": "#2b8a68",
    "faster": "#1c7c5c",
    "slower": "#c0562f",
    "cannot-tell": "#b59a45",
    "not-measured": "#a8adb2",
    "no-kernel": "#8aa0b3",
    "mismatch": "#d39b2a",
    "runtime-error": "#c0562f",
    "compilation-failure": "#8a5a9e",
    "generation-failure": "#7a828a",
    "rejected": "#a8283f",
    "broken": "#a8283f",
    "idle": "#d5d9dc",
}
"""Colours on paper and on light screens. People with colour blindness can tell the states apart. Their lightness has
the same order in print."""
DARK = {
    "page": "#14171a",
    "panel": "#1b1f23",
    "ink": "#e7e9eb",
    "muted": "#9ba5ae",
    "grid": "#2b3138",
    "axis": "#5d6770",
    "accent": "#78b4e8",
    "eager": "#62aae6",
    "compile": "#ee9a55",
    "fastest": "#b9c1c8",
    "correct": "#53bd96",
    "faster": "#53bd96",
    "slower": "#e6835c",
    "cannot-tell": "#d6bc68",
    "not-measured": "#6f7880",
    "no-kernel": "#7f9ab3",
    "mismatch": "#e3b44e",
    "runtime-error": "#e6835c",
    "compilation-failure": "#b78acb",
    "generation-failure": "#8d969e",
    "rejected": "#e06a7f",
    "broken": "#e06a7f",
    "idle": "#3a4249",
}
"""Colours on dark screens: lighter, so that their contrast with the page is as high as on light ones."""
NOT_SERIES = frozenset({"page", "panel", "ink", "muted", "grid", "axis", "accent"})
"""Colours that no curve, bar or state has."""
STATES = {
    "disproved": "rejected",
    "no_attempt": "generation-failure",
    "unfinished": "idle",
    "waiting": "idle",
    "ended": "idle",
    "nothing correct": "idle",
    "start": "idle",
}
"""For each state without a colour of its own name, the colour that it gets."""

CHART_RULES = (
    ".chart{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px;"
    "font-variant-numeric:tabular-nums}"
    ".chart text{fill:var(--ink)}"
    ".chart .muted{fill:var(--muted)}"
    ".chart .strong{font-weight:600}"
    ".chart .grid{stroke:var(--grid);stroke-width:1}"
    ".chart .axis{stroke:var(--axis);stroke-width:1}"
    ".chart .one{stroke:var(--axis);stroke-width:1;stroke-dasharray:3 3}"
    ".chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
    ".chart .thin{fill:none;stroke-width:1}"
    ".chart .band{opacity:.16}"
    ".chart .ribbon{opacity:.28}"
    ".chart .rest{opacity:.1}"
    ".chart .soft{opacity:.55}"
    ".chart .halo{stroke:var(--panel);stroke-width:3;paint-order:stroke;stroke-linejoin:round}"
)
"""How charts look. Every colour is a variable."""


def colour_class(state: str) -> str:
    """Return the name of the colour of a state, a finding or a baseline."""
    return STATES.get(state, state.replace("_", "-").replace(" ", "-"))


def chart_css() -> str:
    """Return the rules of all charts, with colours as variables."""
    names = [name for name in LIGHT if name not in NOT_SERIES]
    filled = "".join(
        f".chart .f-{name}{{fill:var(--{name})}}.chart .s-{name}{{stroke:var(--{name})}}" for name in names
    )
    return CHART_RULES + filled


def page_css() -> str:
    """Return the variables of a page for light and dark screens, and the rules of charts."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{chart_css()}"


def paper_css() -> str:
    """Return the rules of charts with plain colours, because programs that make papers know no variables."""
    return re.sub(r"var\(--([a-z-]+)\)", lambda found: LIGHT[found[1]], chart_css())
