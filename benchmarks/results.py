"""Stores measurements of a device: part by part in a JSON file named after it, and as tables in docs/benchmarks.md.

Parts may be measured at different times and for different commits, so each has a receipt of its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kforge import durable

if TYPE_CHECKING:
    from pathlib import Path

Section = dict[str, Any]

EVALUATIONS = {
    "cuda": ("a program built by NVRTC", 15.0, 4.0),
    "triton": ("a Triton program", 15.0, 4.0),
    "load_inline": ("a `load_inline` extension", 30.0, 5.0),
}
"""For each part: a description of its program, and the goals in seconds for a cold and a warm evaluation."""
SPREAD = 0.02
"""Goal: the largest relative deviation of fresh runs' speedups from their median."""
HALF_WIDTH = 0.01
"""Goal: the half-width of a speedup's interval, as a share of the median."""
RECOVERY = 30.0
"""Goal: seconds from the verdict on a faulty program to a correct verdict on the next program."""


def slug(device: str) -> str:
    """Return a file name for a device, without its maker and parentheses: `NVIDIA H200 (…)` gives `h200`."""
    name = re.sub(r"\(.*?\)", " ", device).partition(",")[0]
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words[1:] or words) or "device"


class Results:
    """The measurements of one device. Each addition goes to disk, so that an interrupted benchmark loses none."""

    def __init__(self, device: str, folder: Path, page: Path) -> None:
        self.path = folder / f"{slug(device)}.json"
        self.page = page
        self._device = device

    def put(self, part: str, section: Section) -> None:
        try:
            known = json.loads(self.path.read_text())
        except FileNotFoundError:
            known = {"device": self._device, "parts": {}}
        known["parts"][part] = section
        durable.write(self.path, json.dumps(known, indent=2, ensure_ascii=False) + "\n")
        show(self.path, self.page)


def show(path: Path, page: Path) -> None:
    """Write the tables of one device's file between their marks in the page, or to its end where it has none."""
    name, document = path.stem, json.loads(path.read_text())
    begin, end = f"<!-- {name}: written by benchmarks/device.py -->", f"<!-- {name}: end -->"
    block = f"{begin}\n\n{tables(document)}\n\n{end}"
    text = page.read_text() if page.exists() else ""
    before, found, rest = text.partition(begin)
    whole = before + block + rest.partition(end)[2] if found else f"{text.rstrip()}\n\n{block}\n".lstrip()
    durable.write(page, whole)


def tables(document: dict[str, Any]) -> str:
    parts: dict[str, Section] = document["parts"]
    found = [f"## {document['device']}"]
    found += [_table(("what", "measured", "goal", "met"), _goals(parts))]
    if stages := [name for name in EVALUATIONS if name in parts]:
        found += ["Seconds of each stage, cold and warm (median):", _stages({name: parts[name] for name in stages})]
    if "candidates" in parts:
        found += [
            "Programs written by hand (tests/platforms/cuda/candidates), over eager and over `torch.compile`:",
            _table(
                ("program", "verdict", "over eager", "over torch.compile", "labels"), _programs(parts["candidates"])
            ),
        ]
    found += ["Receipts:", "\n".join(f"- `{name}`: {_receipt(section)}" for name, section in parts.items())]
    return "\n\n".join(found)


def _goals(parts: dict[str, Section]) -> list[tuple[str, ...]]:
    rows = []
    for name, (what, cold, warm) in EVALUATIONS.items():
        if (part := parts.get(name)) is None:
            continue
        once = part["cold stages"].get("compare", 0.0)
        alone = part["cold seconds"] - once
        measured = f"{alone:.1f} s, and {once:.1f} s once a problem for `torch.compile`"
        rows.append(_row(f"{what}, cold", measured, f"≤ {cold:g} s", alone <= cold))
        if "median seconds" in part:
            measured = f"{part['median seconds']:.2f} s (slowest of {part['evaluations']}: {part['slowest']:.2f} s)"
            rows.append(_row(f"{what}, warm", measured, f"≤ {warm:g} s", part["slowest"] <= warm))
            width = part["half-width"]
            widest = f" (widest: {part['widest']:.2%})" if "widest" in part else ""
            measured = f"± {width:.2%}{widest} in {part['pairs']} pairs, after {part['cases']} cases"
            rows.append(_row("its interval", measured, f"≤ {HALF_WIDTH:.0%}", width <= HALF_WIDTH))
    if (part := parts.get("fresh")) is not None:
        far = part["furthest from the median"]
        rows.append(
            _row(f"speedup in {part['evaluations']} fresh runs", f"± {far:.2%}", f"≤ {SPREAD:.0%}", far <= SPREAD)
        )
    if (part := parts.get("a-a")) is not None:
        findings = part["findings"]
        told = ", ".join(f"{count} {name}" for name, count in findings.items())
        rows.append(_row(f"A/A, {part['evaluations']} times", told, "no win", "faster" not in findings))
    for name, fault in parts.get("faults", {}).get("faults", {}).items():
        after = fault["right after seconds"]
        measured = f"{fault['verdict']} in {fault['seconds']:.1f} s, the next program right after {after:.1f} s"
        rows.append(_row(name, measured, f"≤ {RECOVERY:g} s", fault["survived"] and after <= RECOVERY))
    return rows


def _row(what: str, measured: str, goal: str, met: bool) -> tuple[str, ...]:
    return what, measured, goal, "yes" if met else "no"


def _stages(parts: dict[str, Section]) -> str:
    columns = {f"{name} {when}": part[key] for name, part in parts.items()
               for when, key in (("cold", "cold stages"), ("warm", "stages")) if key in part}  # fmt: skip
    names = list(dict.fromkeys(stage for column in columns.values() for stage in column))
    rows = [(stage, *(f"{c[stage]:.3f}" if stage in c else "" for c in columns.values())) for stage in names]
    return _table(("stage", *columns), rows)


def _programs(part: Section) -> list[tuple[str, ...]]:
    rows = []
    for name, program in part["programs"].items():
        told = [_claim(program["claims"].get(baseline)) for baseline in ("eager", "compile")]
        rows.append((name, program["verdict"], *told, ", ".join(program["labels"])))
    return rows


def _claim(claim: dict[str, Any] | None) -> str:
    if claim is None:
        return "not measured"
    low, median, high = claim["speedup"]
    return f"{median:.3g}x ({low:.3g} to {high:.3g}): {claim['finding']}"


def _receipt(section: Section) -> str:
    receipt = section["receipt"]
    versions = ", ".join(f"{name} {version}" for name, version in receipt["versions"].items())
    told = [section["date"], f"commit {section['commit']}", receipt["device"], section["machine"], versions]
    for moment, values in receipt.get("conditions", {}).items():
        told.append(f"{moment}: " + ", ".join(f"{name} {value}" for name, value in values.items()))
    return "; ".join(told)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
