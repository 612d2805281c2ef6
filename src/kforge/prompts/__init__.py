"""Prompts are files: Jinja2 templates in one folder per template set, and one `render`."""

from kforge.prompts.excerpts import fenced, trim
from kforge.prompts.rendering import MEASURED, STRUCTURED, Rendered, render, template_sets

__all__ = ["MEASURED", "STRUCTURED", "Rendered", "fenced", "render", "template_sets", "trim"]
