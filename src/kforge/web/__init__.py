"""The dashboard of `kforge serve`: live pages of runs and suites, and the evaluation API. Needs the extra `web`.

Every request passes `access.Guard` first. Texts of runs are foreign: templates escape them, and no page executes them.
"""
