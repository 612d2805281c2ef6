"""Labels properties that the inputs of all judged cases had in common. A program may rely on them undetected.
(torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.correctness.case import INTEGERS, UNORDERED
from kforge.problems.inputs import mark_counts
from kforge.problems.inputs.imposed_structure import ASYMMETRIC, FILLED, places_of, structured
from kforge.problems.inputs.mark_counts import MARK_COUNTS
from kforge.problems.inputs.structure import tensors_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from kforge.evaluation.correctness.cases import CaseSource


def fixed_labels(source: CaseSource, judged: Collection[str]) -> dict[str, bool]:
    """Return for each label whether it applies. `judged` are the names of the cases that were judged."""
    return {
        "fixed_integers": _integers_are_fixed(source, judged),
        "distinct_integers": any(leaf.kind == "integer" and leaf.distinct for leaf in source.structure.leaves),
        "fixed_scalars": not set(range(len(source.structure.scalars))) <= source.varied_scalars,
        "fixed_floats": not source.floating <= source.varied,
        "shared_inputs": source.structure.shared,
        "ordered_inputs": not set(source.ordered) <= set(source.sorted if UNORDERED in judged else ()),
        "symmetric_inputs": _is_kept(ASYMMETRIC, source, judged),
        "fixed_zeros": _is_kept(FILLED, source, judged) or _infinities_stay(source),
        "fixed_counts": _marks_are_counted(source, judged),
    }


def _integers_are_fixed(source: CaseSource, judged: Collection[str]) -> bool:
    """Return whether there are integer or mask inputs for which no other values were judged."""
    leaves = [leaf for leaf in source.structure.leaves if leaf.kind in ("integer", "boolean")]
    return any(not leaf.varies for leaf in leaves) or (bool(leaves) and not set(judged) & set(INTEGERS))


def _marks_are_counted(source: CaseSource, judged: Collection[str]) -> bool:
    """Return whether masks had the same number of true elements per row in all judged cases, or never none, or never
    several."""
    counted = set(mark_counts.counted(source.structure))
    return any(name not in judged or not counted <= set(source.mark_counts[name]) for name in MARK_COUNTS if counted)


def _infinities_stay(source: CaseSource) -> bool:
    """Return whether infinite or NaN elements are at the same positions in every draw, and so in every case."""
    sample = source.sample()
    both = zip(tensors_of(sample), source.structure.leaves_of(sample), strict=True)
    kept = (tensor for tensor, leaf in both if leaf is not None and leaf.kind == "floating" and leaf.keeps_places)
    return any(not bool(tensor.isfinite().all()) for tensor in kept)


def _is_kept(kind: str, source: CaseSource, judged: Collection[str]) -> bool:
    """Return whether an input kept its structure of this kind (such as symmetry) in all judged cases."""
    lost = {place for name in judged if name.startswith(f"{kind} ") for place in places_of(name)}
    return not set(structured(kind, source.structure, source.sample())) <= lost
