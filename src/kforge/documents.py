"""Evaluations, attempts and runs as JSON documents, for `--json` and for clients of a server.

Keys that do not apply are absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.models import Ledger
from kforge.models.progress import progress
from kforge.platforms import BrokenPlatform
from kforge.records import Correct, as_json

if TYPE_CHECKING:
    from kforge.platforms import Platform
    from kforge.records import Attempt, Evaluation, Outcome, Sanitization
    from kforge.store import RunFolder


def evaluation(value: Evaluation) -> dict[str, Any]:
    verdict = as_json(value.verdict)
    timing = verdict.pop("timing", None)
    if timing:
        verdict["seconds"] = timing["seconds"]
        verdict["pairs"] = timing["pairs"]
        verdict["speedup"] = {c["baseline"]: c["speedup"] for c in timing["comparisons"]}
        verdict["baselines"] = {
            c["baseline"]: {"identity": c["identity"], "seconds": c["seconds"]} for c in timing["comparisons"]
        }
    if isinstance(value.verdict, Correct):
        comparisons = value.verdict.comparisons
        if comparisons:
            verdict["findings"] = {c.baseline: c.finding for c in comparisons}
        if doubts := {c.baseline: c.doubt for c in comparisons if c.doubt is not None}:
            verdict["doubts"] = doubts
    return {**verdict, "labels": list(value.labels), "receipt": as_json(value.receipt)}


def sanitization(value: Sanitization | None) -> dict[str, Any]:
    return {} if value is None else {"sanitizer": {**as_json(value.outcome), "seconds": value.seconds}}


def attempt(value: Attempt) -> dict[str, Any]:
    document: dict[str, Any] = {"index": value.index, "phase": value.phase}
    if value.parent is not None:
        document["parent"] = value.parent
    if value.recommendation is not None:
        document["recommendation"] = as_json(value.recommendation)
    if value.others:
        document["other_ideas"] = [as_json(each) for each in value.others]
    if value.exhausted:
        document["exhausted"] = list(value.exhausted)
    if value.remarks:
        document["remarks"] = list(value.remarks)
    outcome = evaluation(value.evaluation) if value.evaluation is not None else as_json(value.verdict)
    outcome.pop("receipt", None)
    if value.unchanged is not None:
        outcome["unchanged"] = value.unchanged
    if value.head_to_head is not None:
        outcome["rival"] = value.rival
        outcome["head_to_head"] = as_json(value.head_to_head)
    if value.why_slower:
        outcome["why_slower"] = list(value.why_slower)
    return {**document, **outcome, "usage": as_json(value.usage), "seconds": value.seconds}


def run(folder: RunFolder, outcome: Outcome | None) -> dict[str, Any]:
    attempts, best, reported = folder.attempts(), folder.best(), folder.reported()
    document: dict[str, Any] = {
        "run": str(folder.path),
        "problem": folder.header.problem.name,
        "platform": folder.header.platform,
        "model": folder.header.model,
        "status": folder.status(),
    }
    if outcome is not None:
        document["stopped"] = outcome.stopped
        document["seconds"] = outcome.seconds
        if outcome.no_kernel is not None:
            document["no_kernel"] = outcome.no_kernel
        document["disproved"] = [as_json(each) for each in outcome.disproved]
        if outcome.replication is not None:
            document["replication"] = [evaluation(each) for each in outcome.replication.evaluations]
            document["replicated"] = [as_json(each) for each in outcome.replication.comparisons]
    if best is not None and best.evaluation is not None and reported is not None:
        path = folder.best_path
        where = {"path": str(path)} if path is not None else {}
        document["best"] = {"attempt": best.index, **where, **evaluation(reported)}
        if reported != best.evaluation:
            chosen = evaluation(best.evaluation)
            kept = ("speedup", "findings", "doubts", "seconds", "pairs", "baselines")
            document["best"]["chosen_by"] = {name: chosen[name] for name in kept if name in chosen}
    document["attempts"] = [attempt(a) for a in attempts]
    account = Ledger.read(folder.exchange)
    if attempts:
        document["usage"] = as_json(account.usage)
    if account.calls:
        document["ledger"] = ledger(account)
        document["progress"] = [as_json(each) for each in progress(attempts, account)]
    return document


def ledger(value: Ledger) -> dict[str, Any]:
    """Return the JSON document of a run's model calls: every call, and the sums by agent and in all."""
    return {
        "prices": list(value.prices),
        "calls": [as_json(call) for call in value.calls],
        "agents": {agent: _sum(value.of(agent)) for agent in value.agents},
        "total": _sum(value),
    }


def _sum(value: Ledger) -> dict[str, Any]:
    return {"calls": len(value.calls), **as_json(value.usage), "seconds": value.seconds}


def platform(found: Platform | BrokenPlatform) -> dict[str, Any]:
    """Return the JSON document of a platform: what it is, and whether it can be used here, or else the reason."""
    if isinstance(found, BrokenPlatform):
        return {"name": found.name, "available": False, "reason": found.reason, "folder": found.origin}
    reason = found.adapter.probe()
    row = {
        "name": found.name,
        "title": found.manifest.title,
        "language": found.manifest.language,
        "device": found.manifest.device,
        "available": reason is None,
        "folder": str(found.folder),
    }
    return row if reason is None else {**row, "reason": reason}
