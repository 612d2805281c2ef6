"""Receipts: signed when they are written, and checked when they are read, before anything in them is run.

A receipt is a file that anybody may have edited. Its claims are recomputed from the samples that it holds. A receipt
that contradicts itself is not measured again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import operator
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from kforge.cli.output import words
from kforge.errors import InputError
from kforge.evaluation.baselines import compile_mode
from kforge.evaluation.constants import BUSY_SHARE, MAX_PAIRS, MOST_PACED_OPEN, STATISTICS
from kforge.records import Proof, as_json
from kforge.records.faults import first_fault
from kforge.records.policy import check_choice
from kforge.store.signature import SIGNATURE, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.evaluation.timing.pairs import PairedSamples
    from kforge.records import Comparison, Correct, Evaluation, Interval, Timing
    from kforge.store import Key, RunFolder

RECEIPT = "receipt"
"""The kind of file, which is part of what is signed: a signature of another kind is not valid for a receipt."""
CLOSE = 0.05
"""Share by which a claimed speedup may be above the one recomputed from its samples. A receipt stores the foreign load
rounded, which can change which pairs count."""
BELOW = 0.5
"""Share by which a claimed speedup may be below the recomputed one. The claim may be lower, because it may also rest on
other measurements."""
REACH = 1.25
"""Factor by which an interval may reach beyond the ratios of all its pairs: it allows for process-to-process
variation."""
DRIFT = 4.0
"""Factor by which the seconds of a baseline that was measured at another time may differ from the claimed speedup."""
SHORTEST, LONGEST = 1e-12, 1e9
"""Shortest and longest valid sample in seconds. Everything that is computed from samples within these bounds is
finite."""
MOST_CHARGE = 20.0
"""Largest valid logarithm of what stopping a worker may charge a pair."""
MOST_SAMPLES, MOST_PACED_SAMPLES = 4 * MAX_PAIRS, 4 * MOST_PACED_OPEN
"""Most samples of one kind, and most samples of paced blocks, that a receipt may hold. Their statistics are computed by
resampling them thousands of times, for paced blocks more than once."""
PACED = "one by one"
"""The ending of the names of samples from paced blocks."""
MOST_EVALUATIONS, MOST_SAMPLES_IN_ALL = 100, 100 * MAX_PAIRS
"""Most evaluations of a run's best program, and most samples in all of them: the figures of each are recomputed before
the user is asked. An evaluation of the most pairs has 3,000 samples, a usual one less than 1,000."""


class Claim(NamedTuple):
    """What a receipt or a run says about a program (its verdict and speedup), and the evaluations that support it."""

    proof: Proof
    evidence: tuple[Evaluation, ...]
    """The evaluations with their samples; for a run, also the repetitions of its best program."""
    origin: str
    """The name of the receipt, or the path of the run."""
    is_ours: bool
    """Whether this user signed it on this machine."""
    readable: Path | None = None
    """The file in which the problem's source can be read; a receipt has none."""
    program: Path | None = None
    """The file that holds the program. None for a receipt, and for a run none of whose files holds it."""


def signed(proof: Proof, key: Key) -> Proof:
    """Return the receipt with the user's signature; unchanged if no key can be stored. Raises InputError if others can
    read the key."""
    return proof.model_copy(update={SIGNATURE: key.sign(RECEIPT, canonical(as_json(proof)))})


def read(text: str, name: str, key: Key) -> Claim:
    """Return the claim of a receipt. Raises InputError for a text that is not a receipt."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise InputError(f"{name} is not a receipt of `kforge eval --receipt`: it holds no JSON object")
        content = canonical(document)
        proof = Proof.from_json(json.dumps(document))  # parse exactly the document that was signed
    except ValidationError as error:
        raise InputError(f"{name} is not a receipt of `kforge eval --receipt`: {first_fault(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not a receipt of `kforge eval --receipt`: it is not JSON ({error})") from error
    if proof.problem.state_path is not None or proof.problem.state_digest is not None:
        raise InputError(f"{name}: a receipt cannot be of a problem with a file of weights; verify its run instead")
    _check_names(proof.evaluation, name)
    _check_size((proof.evaluation,), name)
    return Claim(proof, (proof.evaluation,), name, key.has_signed(RECEIPT, content, proof.signature))


def of_run(run: RunFolder, key: Key) -> Claim:
    """Return the claim of a run about its best program. Raises InputError when it has none."""
    best, reported, outcome = run.best(), run.reported(), run.outcome()
    if best is None or best.candidate is None or best.evaluation is None or reported is None:
        raise InputError(f"run {run.id} has no correct program to verify")
    replication = outcome.replication if outcome is not None else None
    evidence = (best.evaluation, *(replication.evaluations if replication is not None else ()))
    if len(evidence) > MOST_EVALUATIONS:
        said = f"holds {len(evidence)} evaluations of its best program, and `verify` reads at most {MOST_EVALUATIONS}"
        raise InputError(f"run {run.id} {said}")
    _check_size(evidence, f"run {run.id}")
    try:
        proof = Proof(problem=run.header.problem, candidate=best.candidate, evaluation=reported)
    except ValidationError as error:
        raise InputError(f"run {run.id} is damaged: {first_fault(error)}") from error
    for evaluation in evidence:
        _check_names(evaluation, str(run.path))
    is_ours = run.is_signed(key)
    readable = None if is_ours else run.readable_problem()
    return Claim(proof, evidence, str(run.path), is_ours, readable, run.best_path)


def _check_size(evidence: tuple[Evaluation, ...], origin: str) -> None:
    """Raise InputError if recomputing the figures of all these evaluations would take minutes."""
    held = sum(len(samples) for each in evidence for samples in each.receipt.samples.values())
    if held > MOST_SAMPLES_IN_ALL:
        raise InputError(f"{origin}: holds {held} samples, and `verify` recomputes at most {MOST_SAMPLES_IN_ALL}")


def _check_names(evaluation: Evaluation, origin: str) -> None:
    """Raise InputError for an unknown precision, track or mode of `torch.compile`."""
    for kind in ("precision", "track"):
        try:
            check_choice(kind, getattr(evaluation.receipt, kind))
        except ValueError as error:
            raise InputError(f"{origin}: {error}") from error
    timing = evaluation.correct.timing if evaluation.correct is not None else None
    compiled = timing.against("compile") if timing is not None else None
    if compiled is not None:
        try:
            compile_mode(compiled.identity)
        except ValueError as error:
            raise InputError(
                f"{origin}: the comparison with torch.compile has no valid compile mode ({error}); the receipt is "
                "damaged or was not made by kforge"
            ) from error


# --- whether a claim agrees with itself ---------------------------------------------------------------------


def contradictions(evaluation: Evaluation) -> list[str]:
    """Return each contradiction between an evaluation's figures, or between the figures and their samples.

    A summary that another version of the statistics made is not recomputed (`not_recomputed`); everything else is
    checked.
    """
    correct = evaluation.correct
    if correct is None:
        return []
    return list(_figures(correct)) or list(_against_samples(correct.timing, evaluation))


def not_recomputed(evidence: tuple[Evaluation, ...]) -> tuple[str, ...]:
    """Return a note if the summary was made by another version of the statistics than the one of this kforge."""
    versions = {each.receipt.statistics for each in evidence if each.correct is not None} - {STATISTICS}
    if not versions:
        return ()
    named = " and ".join(sorted("an unknown version" if each is None else f"version {each}" for each in versions))
    said = f"it was made by {named} of the statistics, and this kforge has version {STATISTICS}"
    return (f"the summary of its samples, which cannot be recomputed ({said})",)


def _figures(correct: Correct) -> Iterator[str]:
    for name, value in {"largest error": correct.max_error, "tolerance": correct.tolerance}.items():
        if not (math.isfinite(value) and value >= 0):
            yield f"its {name} is {value}"
    if correct.max_error > correct.tolerance:
        yield f"its largest error {correct.max_error:.1e} is above the {correct.tolerance:.1e} allowed"
    pairs = correct.timing.pairs if correct.timing is not None else None
    if correct.cases < 1 or pairs == 0:
        yield f"it counts {correct.cases} cases and {pairs} pairs"


def _are_times(*values: float) -> bool:
    return all(SHORTEST <= value <= LONGEST for value in values)


def _against_samples(timing: Timing | None, evaluation: Evaluation) -> Iterator[str]:
    from kforge.evaluation.timing.pairs import PairedSamples  # imports numpy, which other commands do not need

    receipt, held = evaluation.receipt, evaluation.receipt.samples
    if timing is None:
        if held:
            yield "it was not timed, and holds samples"
        return
    if (most := max(map(len, held.values()), default=0)) > MOST_SAMPLES:
        yield f"it holds {most} samples of one kind, and kforge takes at most {MAX_PAIRS} pairs"
        return
    most = max((len(each) for kind, each in held.items() if kind.endswith(PACED)), default=0)
    if most > MOST_PACED_SAMPLES:
        yield f"it holds {most} samples of paced blocks, and kforge takes at most {MOST_PACED_OPEN} pairs of them"
        return
    eager, candidate = (held.get(side, ()) for side in ("eager", "candidate"))
    if not len(eager) == len(candidate) == timing.pairs or not _are_times(*eager, *candidate):
        yield f"it holds {len(eager)} and {len(candidate)} samples of {timing.pairs} pairs, or some are not valid times"
        return
    if receipt.statistics != STATISTICS:
        yield from _of_others(timing)
        return
    alone = tuple(zip(held.get(f"eager {PACED}", ()), held.get(f"candidate {PACED}", ()), strict=False))
    foreign, charges = held.get("foreign load", ()), held.get("stopping charge", ())
    is_charged = len(charges) == timing.pairs and all(abs(each) <= MOST_CHARGE for each in charges)
    around = held.get("around a call", ())
    around = around if len(around) == 2 and all(0 <= each <= LONGEST for each in around) else (0.0, 0.0)
    samples = PairedSamples(
        baseline=list(eager),
        candidate=list(candidate),
        charges=list(charges) if is_charged else [],
        foreign=list(foreign) if len(foreign) == timing.pairs else [],
        paced=[pair for pair in alone if _are_times(*pair)],
        around=around[0],
        around_paced=around[1],
    )
    samples.busy = _least_load(samples.foreign, evaluation.labels)
    # the receipt holds neither the number of looks at the interval nor whether the program started processes, so all
    # combinations are tried, and the one with the fewest contradictions counts
    fewest: list[str] | None = None
    for looks, helpers in itertools.product((1, 2), (False, True)):
        found = list(_against(timing, dataclasses.replace(samples, looks=looks, has_helpers=helpers)))
        if fewest is None or len(found) < len(fewest):
            fewest = found
        if not fewest:
            return
    yield from fewest or ()


def _least_load(foreign: list[float], labels: tuple[str, ...]) -> float:
    """Return a lower bound of the share of the machine that other processes used during the whole timing.

    The label tells whether it was more than BUSY_SHARE, but a forger may have removed the label. Each pair's share is
    that of a window around the pair. Some of these windows cover the whole race in such a way that no moment lies in
    more than two of them; so the share of the whole race is at least half of the lowest one.
    """
    labelled = math.nextafter(BUSY_SHARE, 1.0) if foreign and "busy_machine" in labels else 0.0
    return max(labelled, min(foreign, default=0.0) / 2)


def _against(timing: Timing, samples: PairedSamples) -> Iterator[str]:
    # the receipt does not tell what the program did outside its timed calls, nor what held a device back
    if (doubt := samples.doubt) is not None and any(each.doubt is None for each in timing.comparisons):
        yield f"it claims a speedup without a doubt, and by its own samples there is one: {doubt}"
    for each in timing.comparisons:
        if each.baseline == "eager":
            yield from _of_eager(each, samples)
    yield from _of_others(timing)
    yield from _seconds(timing.seconds.median, samples.candidate_seconds().median, "a call")


def _of_eager(each: Comparison, samples: PairedSamples) -> Iterator[str]:
    claimed, interval = each.speedup, samples.speedup()
    ratios = [*map(math.exp, samples.log_ratios), *map(operator.truediv, samples.baseline, samples.candidate)]
    # the interval of a few very different pairs is wider than the range of their ratios
    highest = max(*ratios, interval.high)
    lowest = min(min(ratios) * math.exp(-samples.allowance), interval.low)
    if not (1 - BELOW) * interval.median <= claimed.median <= (1 + CLOSE) * interval.median:
        yield f"it claims {claimed.median:.2f}x over eager, and its own samples say {interval.median:.2f}x"
    elif claimed.high > REACH * highest or claimed.low < lowest * (1 - BELOW) / REACH:
        yield (
            f"its interval {claimed.low:.2f} to {claimed.high:.2f} over eager reaches beyond its own samples, "
            f"{min(ratios):.2f} to {max(ratios):.2f}"
        )
    yield from _seconds(each.seconds, samples.baseline_seconds(), "a call of eager")


def _of_others(timing: Timing) -> Iterator[str]:
    for each in timing.comparisons:
        if each.baseline != "eager":
            yield from _of_another(each, timing.seconds)


def _of_another(each: Comparison, seconds: Interval) -> Iterator[str]:
    """Check the speedup over a baseline that was measured at another time. The receipt has no samples of it, so the
    speedup must be close to the ratio of the seconds per call."""
    said = each.seconds / seconds.median
    if not said / DRIFT <= each.speedup.median <= said * DRIFT:
        claimed = f"{each.speedup.median:.2f}x over {words.BASELINES[each.baseline]}"
        yield f"it claims {claimed}, and its own seconds say {said:.2f}x"


def _seconds(claimed: float, said: float, what: str) -> Iterator[str]:
    if not said / (1 + CLOSE) <= claimed <= said * (1 + CLOSE):
        yield f"it claims {words.duration(claimed)} {what}, and its own samples say {words.duration(said)}"
