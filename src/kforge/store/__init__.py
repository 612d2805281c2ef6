"""Runs on disk and in SQL: the folder is the truth, the index is rebuilt from it."""

from kforge.store.folder import RunFolder
from kforge.store.index import Index, Listing, index_url, list_runs
from kforge.store.records import Disproof, Header, Option, Outcome, RunSummary, best_attempt, short_id, why_no_kernel
from kforge.store.signature import Key
from kforge.store.suite import Breakdown, SuiteFolder, SuiteHeader, suite_paths
from kforge.store.trust import Consent

__all__ = [
    "Breakdown",
    "Consent",
    "Disproof",
    "Header",
    "Index",
    "Key",
    "Listing",
    "Option",
    "Outcome",
    "RunFolder",
    "RunSummary",
    "SuiteFolder",
    "SuiteHeader",
    "best_attempt",
    "index_url",
    "list_runs",
    "short_id",
    "suite_paths",
    "why_no_kernel",
]
