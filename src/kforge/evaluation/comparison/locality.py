"""Measures errors of parts of an output on the part's own scale, so that small parts must be right as well. (torch)

The worst error of an output is measured on the scale of the whole tensor. So rows that are small by construction, such
as the later steps of a decaying scan, could be zeros and pass. The error is also compared with torch's own worst error.
So if torch loses all digits of one element (a difference of nearly equal numbers), a constant could pass everywhere.
Therefore the error of each part is measured, too: the norm of the difference divided by the norm of the right result,
at most 1. There are four kinds of parts:

- Rows: the last dimension, or as many of the last dimensions as hold `LEAST_ROW` elements. Each row counts.
- Runs of `RUN` elements along each dimension, at random positions if there are many. Runs of a similar scale (within a
  factor of `STEP`) are pooled. The mean and the median of a pool's errors count, because the error of a single run
  varies much. The mean shows that some runs are zeros. The median shows that all runs have few correct bits, even if
  torch is far off in some.
- Slices along each dimension and each pair of dimensions (`slices.py`), which show a channel or head of few bits.
- Elements anywhere that are far smaller than all others (`magnitudes.py`), such as those that a mask leaves.

The error of a part may be its limit, or `ERROR_FACTOR` times torch's own error there. Scattered small elements are not
judged separately: a formula that is exact to the scale of the neighbouring elements is fair.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from functools import lru_cache

import torch

from kforge.evaluation.comparison.magnitudes import Magnitude, small_magnitudes
from kforge.evaluation.comparison.slices import Slices, small_slices
from kforge.evaluation.constants import LEAST_SCALE, LOCAL_FACTOR, LOST

LEAST_ROW = 16
"""Fewest elements of a row that is judged on its own scale. With fewer, torch's own error tells little about the error
of another honest program."""
RUN, RUNS = 16, 1024
"""A run is a sequence of RUN neighbouring elements along a dimension, judged on its own scale. RUNS is the most runs
that are examined along each dimension."""
SAMPLES = 8
"""Number of random samples of positions of runs for each output shape. They are drawn once in a process and used again,
because drawing takes as long as comparing."""
COUNTED = 1 << 14
"""Most elements of an output in which small elements are counted first, to save the check of its parts. In larger
outputs counting takes too long."""
SHORTEST_RUN = 8
"""A dimension with fewer elements is not cut into runs, unless the tensor has no other dimension."""
STEP = 8.0
"""Runs of elements whose scales differ by less than this factor are judged together, as one pool."""
POOLS = 48
"""Number of pools into which runs of elements are grouped by their scale. The last one holds all runs below 8**-46 of
the output's scale."""
STATISTICS_PER_POOL = 2
"""Numbers that are computed for each pool of runs: the mean and the median of their errors."""
LEAST_POOL_SHARE = 2e-3
"""A pool with a smaller share of all runs is not judged: some runs are small by chance."""


def row_norms(exact: torch.Tensor) -> torch.Tensor:
    """Return the norm of each row of the right output. This takes no longer than the norm of the whole."""
    flat = _flat(exact)
    norms: torch.Tensor = torch.linalg.vector_norm(flat.view(-1, _row_width(_shape(exact))), dim=1)
    return norms


def has_small_parts(exact: torch.Tensor, rms: float, floor: float, farthest: float) -> bool:
    """Return False if no part is so small that a difference of up to `farthest` could be an error on its own scale.

    If it returns True, there may still be no such part.
    """
    small = farthest / (LOCAL_FACTOR * floor)
    if farthest > floor * rms or exact.is_complex() or exact.numel() > COUNTED:
        return True
    most = SHORTEST_RUN // 2 if exact.numel() >= LEAST_ROW else 1
    return int((exact.abs() < 1.5 * small).sum()) >= most


@dataclass(frozen=True)
class _Runs:
    """Runs (short sequences of elements) along one dimension: their elements, their norms, and the pool of each."""

    dimension: str
    index: torch.Tensor
    exact: torch.Tensor
    norm: torch.Tensor
    pool: torch.Tensor
    judged: torch.Tensor
    """Numbers of the pools (groups of runs of similar scale) that hold enough runs to be judged."""

    def errors(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the mean and the median error of the runs of each judged pool."""
        apart = torch.linalg.vector_norm(flat[self.index].double() - self.exact, dim=1)
        each = _clipped(apart / self.norm)
        pools = [each[self.pool == pool] for pool in self.judged]
        found = [statistic for pool in pools for statistic in (pool.mean(), pool.median())]
        return torch.stack(found) if found else each[:0]


class Surroundings:
    """The parts of one output (rows, runs, slices, small elements), with their scales and the errors that they may
    have."""

    def __init__(
        self,
        exact: torch.Tensor,
        norms: torch.Tensor,
        floor: float,
        farthest: float,
        least: float = LOST,
        slice_limit: float | None = None,
    ) -> None:
        """`exact` is the right result, which must be finite. `norms` are the norms of its rows. `farthest` is the
        largest difference of the output that will be judged.

        Parts are left out if they are so large that this difference is no error there. `least` is the error that a row
        or run may always have. `slice_limit` is the error that a slice may always have.
        """
        self._slice_limit = LOCAL_FACTOR * floor if slice_limit is None else slice_limit
        self._lost = max(least, LOCAL_FACTOR * floor)
        self._floor = floor
        flat = _flat(exact)
        self._width = _row_width(_shape(exact))
        rows = flat.view(-1, self._width)
        rms = float(torch.linalg.vector_norm(norms, dtype=torch.float64)) / math.sqrt(len(flat))
        # in parts below this scale `farthest` may be an error, even if the output as a whole is within the floor
        small = farthest / self._lost
        near = (norms < 2 * small * math.sqrt(self._width)).nonzero().flatten()
        exact_rows = rows[near].double()
        near_norms = torch.linalg.vector_norm(exact_rows, dim=1)
        scale = near_norms / math.sqrt(self._width)
        counts = (scale > LEAST_SCALE) & (scale < small)
        self._count = len(rows)
        self._rows, self._exact_rows, self._row_norms = near[counts], exact_rows[counts], near_norms[counts]
        within = farthest <= floor * rms
        sample = secrets.randbelow(SAMPLES)
        runs = _runs_along(_shape(exact), sample)
        found = (_pooled(flat, name, index, rms, small if within else math.inf) for name, index in runs)
        self._runs = [each for each in found if each is not None]
        small = farthest / self._slice_limit
        self._slices: list[Slices | Magnitude] = [
            *small_slices(flat, _shape(exact), small, sample),
            *small_magnitudes(flat, small, sample),
        ]

    @property
    def limits(self) -> torch.Tensor:
        """The error that each part of the output may have, whatever torch's own error is."""
        rows = torch.full((len(self._rows),), self._lost, dtype=torch.float64)
        pools = [(self._floor * STEP ** runs.judged.double().cpu()).clamp(max=self._lost) for runs in self._runs]
        slices = torch.full((sum(map(len, self._slices)),), self._slice_limit, dtype=torch.float64)
        return torch.cat([rows, *(each.repeat_interleave(STATISTICS_PER_POOL) for each in pools), slices])

    def errors(self, output: torch.Tensor) -> torch.Tensor:
        """Return the error of each part. 1 is the largest error, and means that no digit is right."""
        flat = _flat(output)
        apart = torch.linalg.vector_norm(flat.view(-1, self._width)[self._rows].double() - self._exact_rows, dim=1)
        rows = _clipped(apart / self._row_norms)
        slices = [_clipped(each.errors(flat)) for each in self._slices]
        return torch.cat([rows, *(runs.errors(flat) for runs in self._runs), *slices]).cpu()

    def name(self, part: int) -> str:
        """Return the name of a part of the output for messages. Raises IndexError if there is no part of this
        number."""
        if part < len(self._rows):
            return f"row {int(self._rows[part])} of {self._count}"
        part -= len(self._rows)
        for runs in self._runs:
            if part < STATISTICS_PER_POOL * len(runs.judged):
                pool = int(runs.judged[part // STATISTICS_PER_POOL])
                size = f"less than {STEP:g}^-{pool - 1} of" if pool > 1 else "about as large as"
                return f"parts along {runs.dimension} that are {size} the output's scale"
            part -= STATISTICS_PER_POOL * len(runs.judged)
        for slices in self._slices:
            if part < len(slices):
                return slices.name(part)
            part -= len(slices)
        raise IndexError(part)


def _pooled(flat: torch.Tensor, dimension: str, index: torch.Tensor, rms: float, small: float) -> _Runs | None:
    """Group runs of elements into pools of similar scale. Returns None if no run has a scale below `small`."""
    index = index.to(flat.device)
    exact = flat.index_select(0, index.reshape(-1)).view(index.shape).double()
    norm = torch.linalg.vector_norm(exact, dim=1)
    share, root = 1 / len(index), math.sqrt(index.shape[1])
    counts = norm > LEAST_SCALE * root
    if not bool((counts & (norm < small * root)).any()):
        return None
    index, exact, norm = index[counts], exact[counts], norm[counts]
    below = (rms * root / norm).log2() / math.log2(STEP)
    pool = below.ceil().clamp(0, POOLS - 1).long()
    judged = (torch.bincount(pool, minlength=POOLS) * share >= max(LEAST_POOL_SHARE, share)).nonzero().flatten()
    return _Runs(dimension, index, exact, norm, pool, judged)


@lru_cache(maxsize=4 * SAMPLES)
def _runs_along(shape: tuple[int, ...], sample: int) -> list[tuple[str, torch.Tensor]]:
    """Return for each dimension its name and the flat indices of runs of elements along it, one row for each run."""
    del sample  # part of the cache key only
    count = math.prod(shape)
    if count < LEAST_ROW:  # so few that each element counts
        return [("the output", torch.arange(count).view(-1, 1))]
    found = []
    for dimension, size in enumerate(shape):
        if size >= SHORTEST_RUN:
            inner = math.prod(shape[dimension + 1 :])
            found.append((f"dimension {dimension}", _runs_in(count // (size * inner), size, inner)))
    if shape[-1] < SHORTEST_RUN:
        found.append(("the output", _runs_in(1, count, 1)))
    return found


def _runs_in(outer: int, size: int, inner: int) -> torch.Tensor:
    """Return the flat indices of runs along a dimension of this size, with `outer` and `inner` positions around it."""
    length = min(RUN, size)
    each = -(-size // length)
    if outer * each * inner <= RUNS:
        number = torch.arange(outer * each * inner)
        starts = (number // inner % each * length).clamp(max=size - length)
        first = number // (inner * each) * size * inner + starts * inner + number % inner
    else:
        generator = torch.Generator().manual_seed(secrets.randbits(62))
        group, start, within = (
            torch.randint(most, (RUNS,), generator=generator) for most in (outer, size - length + 1, inner)
        )
        first = (group * size + start) * inner + within
    return first[:, None] + torch.arange(length) * inner


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor, with a last dimension of 2 for complex numbers."""
    return (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)


def _row_width(shape: tuple[int, ...]) -> int:
    """Return how many elements of an output of this shape make up a row that is judged on its own scale."""
    width = 1
    for size in reversed(shape):
        width *= size
        if width >= LEAST_ROW:
            break
    return width


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).reshape(-1)


def _clipped(errors: torch.Tensor) -> torch.Tensor:
    """Return the errors with NaN and everything above 1 replaced by 1."""
    return errors.nan_to_num_(nan=1.0, posinf=1.0).clamp_(max=1.0)
