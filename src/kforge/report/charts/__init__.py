"""Charts as SVG text, drawn by pure functions: the same for the page and for papers.

Colours are CSS classes (`palette`), so that one drawing fits dark and light pages. All text is escaped by `svg.tag`.
"""
