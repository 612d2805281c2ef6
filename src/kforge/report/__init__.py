"""Reports of runs and suites: one offline HTML page, Markdown, CSV, and figures as SVG.

Data flows one way: `rows` and `stories` read run folders into the records of `views`; `figures` turns those records
into SVG; `page`, `markdown` and `tables` turn them into files. The dashboard uses the same views and templates.
"""
