"""The accuracy that a program must have: constants that both the evaluation and the agents' prompts use."""

from __future__ import annotations

from types import MappingProxyType

ERROR_FACTOR = 4.0
"""A candidate's error may be this factor times torch's own error at the same dtype. The error in FLOORS is allowed in
any case."""
FLOORS = MappingProxyType(
    {
        "strict": MappingProxyType({"float64": 1e-12, "float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}),
        "tf32": MappingProxyType({"float64": 1e-12, "float32": 2e-3, "float16": 2e-3, "bfloat16": 8e-3}),
        "half": MappingProxyType({"float64": 1e-12, "float32": 8e-3, "float16": 8e-3, "bfloat16": 1.6e-2}),
    }
)
"""Floor: the error that is always allowed, relative to the root mean square of the output. By precision, then by
dtype."""
WEIGHT_CHANGES = 6
"""Number of times the weights are changed while a program is verified. The first change is of all weights, the others
are of some elements in some of the tensors."""
