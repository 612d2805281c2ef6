"""The adapter for the host's processor. Calls are synchronous, and C++ loops often reach a higher memory bandwidth than
torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import inline, platforms
from kforge.platforms import NoSanitizer, asan, host

if TYPE_CHECKING:
    from kforge.platforms import Sanitizer
    from kforge.records import Peaks

_STREAM = r"""
#include <cstdint>

extern "C" void triad(const float* __restrict__ b, const float* __restrict__ c, float* __restrict__ a, int64_t n) {
    #pragma omp parallel for simd
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}

extern "C" float total(const float* __restrict__ b, int64_t n) {
    float sum = 0;
    #pragma omp parallel for simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += b[i];
    return sum;
}
"""


class Adapter(platforms.Adapter):
    """The adapter for C++ on the host's processor."""

    def features(self) -> frozenset[str]:
        return host.features()

    def sanitizers(self) -> tuple[Sanitizer, ...] | NoSanitizer:
        found = asan.find()
        return found if isinstance(found, NoSanitizer) else (found,)

    def synchronize(self) -> None:
        """Do nothing: a call on the host is done when it returns."""

    def measure_peaks(self) -> Peaks:
        """Return the rates that torch reaches, with the bandwidth of STREAM's triad or of a plain sum if that is
        higher."""
        import torch

        from kforge.platforms import peaks

        general = super().measure_peaks()
        stream = inline.compile(_STREAM)
        count = peaks.BUFFER_BYTES // 4
        b, c, a = torch.ones(count), torch.ones(count), torch.empty(count)
        triad = peaks.rate(lambda: stream.triad(b, c, a, count), 3 * peaks.BUFFER_BYTES, self.synchronize)
        total = peaks.rate(lambda: stream.total(b, count), peaks.BUFFER_BYTES, self.synchronize)
        found = {"bytes_per_second": max(general.bytes_per_second, triad, total)}
        if host.MATRIX_UNIT in self.features():
            bfloats = peaks.flops_per_second(self.device(), self.synchronize, torch.bfloat16)
            found["flops_per_second"] = max(general.flops_per_second, bfloats / peaks.BFLOATS)
        return general.model_copy(update=found)
