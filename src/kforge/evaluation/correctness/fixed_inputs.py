"""Labels for what was alike in the inputs of all cases: a program may rely on that, and nobody would notice. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.correctness.cases import INTEGERS, UNORDERED
from kforge.problems.inputs.imposed_structure import ASYMMETRIC, FILLED, place_of, structured

if TYPE_CHECKING:
    from collections.abc import Collection

    from kforge.evaluation.correctness.cases import CaseSource


def fixed_labels(source: CaseSource, judged: Collection[str]) -> dict[str, bool]:
    """Which of these labels apply, where cases of the given names were judged, and not dropped."""
    return {
        "fixed_integers": _integers_are_fixed(source, judged),
        "fixed_scalars": _scalars_are_fixed(source, judged),
        "fixed_floats": not source.floating <= source.varied,
        "shared_inputs": source.structure.shared,
        "ordered_inputs": not set(source.ordered) <= set(source.sorted if UNORDERED in judged else ()),
        "symmetric_inputs": _is_kept(ASYMMETRIC, source, judged),
        "fixed_zeros": _is_kept(FILLED, source, judged),
    }


def _integers_are_fixed(source: CaseSource, judged: Collection[str]) -> bool:
    """Whether there are integers or masks in the inputs of which none of other values could be judged."""
    leaves = [leaf for leaf in source.structure.leaves if leaf.kind in ("integer", "boolean")]
    return any(not leaf.varies for leaf in leaves) or (bool(leaves) and not set(judged) & set(INTEGERS))


def _scalars_are_fixed(source: CaseSource, judged: Collection[str]) -> bool:
    """The same of Python numbers and flags; integers and strings always stay."""
    scalars = set(source.structure.scalars)
    return bool({int, str} & scalars) or (bool(scalars) and "other_scalars" not in judged)


def _is_kept(kind: str, source: CaseSource, judged: Collection[str]) -> bool:
    """Whether an input has kept its structure of this kind in all cases."""
    lost = {place_of(name) for name in judged if name.startswith(f"{kind} ")}
    return not set(structured(kind, source.structure, source.sample())) <= lost
