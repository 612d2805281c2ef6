"""Prompts are files: Jinja2 templates in one folder per template set, and one `render`."""

from kforge.prompts.excerpts import fenced, trim
from kforge.prompts.rendering import MEASURED, Rendered, render

__all__ = ["MEASURED", "Rendered", "fenced", "render", "trim"]
