"""Runs on disk, and an SQL index over them. The folders are authoritative; the index is rebuilt from them."""

from kforge.store.folder import RunFolder, run_paths
from kforge.store.index import Index, Listing, index_url, list_runs
from kforge.store.records import Budgets, Header, Option, RunSummary, short_id
from kforge.store.signature import Key
from kforge.store.suite import Breakdown, SuiteFolder, SuiteHeader, find_folder, suite_paths
from kforge.store.trust import Consent

__all__ = [
    "Breakdown",
    "Budgets",
    "Consent",
    "Header",
    "Index",
    "Key",
    "Listing",
    "Option",
    "RunFolder",
    "RunSummary",
    "SuiteFolder",
    "SuiteHeader",
    "find_folder",
    "index_url",
    "list_runs",
    "run_paths",
    "short_id",
    "suite_paths",
]
