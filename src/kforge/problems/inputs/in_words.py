"""Describes the cases on which a program is verified, one line each, for people and for prompts."""

from __future__ import annotations

ALWAYS = {
    "as_given": "inputs from the problem's own `get_inputs`",
    "shifted": "normal numbers around 3, so that sums do not cancel",
    "negative": "numbers from -100 down to about -1000, where exp is zero; a running maximum must not begin at zero",
    "positive": "the mirror image of `negative`: whole rows above zero",
    "rising": "each row strictly rises along the last dimension",
    "uniform": "between -1 and 1",
    "tiny": "so small that 1 + x is hardly more than 1; of inputs between 0 and 1, half of the samples are as close "
    "to 1",
    "large": "normal numbers times 256: exp overflows in float32",
    "huge": "normal numbers times 16384",
    "edges": "the first or the last element of each row is 16384, the others are normal",
    "mixed_scale": "each row is scaled by its own power of two, from 2^-8 to 2^8",
    "zeros": "all zeros, such as rows without a norm",
    "ties": "multiples of a half, so that many elements are equal",
    "one_hot": "zeros with a single one in each row",
    "binary": "zeros and ones",
    "mixed_rows": "neighbouring rows of four different kinds",
    "odd_rows": "inputs as given, but a few rows at secret places are of another kind; also in timed calls",
    "odd_elements": "inputs as given, but a few elements at secret places are up to 16384",
    "special_floats": "numbers of the module's source, attributes, buffers and arguments at some places of the inputs, "
    "in a few whole rows, and as inputs of one number",
    "large_weights": "a row of a parameter far larger than drawn",
    "enormous": "one input is about 2^24, the others as given; only gross errors count",
    "minute": "one input is about 2^-50, the others as given; only gross errors count",
    "outside": "an input leaves the interval of its given values; only gross errors count",
}
"""Descriptions of the cases for floating-point inputs and weights, by kind."""
INTEGERS = {
    "other_integers": "other integers of the given range",
    "skewed_integers": "integers of which a few are much more frequent than others",
    "all_alike": "one integer throughout an input; masks that are true or false throughout",
    "uniform_masks": "masks that are true or false throughout, whichever they mostly are: no object at all",
    "flipped_masks": "a few elements of a mask are turned",
    "special_integers": "integers that the module treats in a special way: an ignored index, a length of zero",
    "copied_integers": "integers of one input that are copied into others",
    "larger_integers": "integers outside the given range, as far as the module accepts them",
    "no_marks": "rows of a mask without any true element",
    "several_marks": "rows of a mask with several true elements",
}
"""Descriptions of the cases for integer and boolean inputs, by kind."""
STRUCTURE = {
    "moved_zeros": "zeros or infinities at other places than given",
    "unordered": "inputs that are given in ascending order, in another order",
    "asymmetric": "a symmetric input that is no longer symmetric",
    "filled_zeros": "zeros at fixed places that are no longer zero",
}
"""Descriptions of the cases for inputs with a structure that the module may not need, by kind."""
SCALARS = {
    "other_scalars": "other Python numbers and flags among the arguments",
    "ordinary_scalars": "ordinary numbers in place of very small or very large ones",
    "negated_scalars": "a Python number with the other sign",
    "turned_flags": "a flag that is turned",
}
"""Descriptions of the cases for Python numbers and flags among the arguments of `forward`, by kind."""
CASES = {**ALWAYS, **INTEGERS, **STRUCTURE, **SCALARS}
"""Descriptions of all cases, by kind."""


def kind(case: str) -> str:
    """Return the kind of a case from its name: `enormous #2` is of the kind `enormous`."""
    return case.partition(" ")[0]


def explained(case: str) -> str:
    """Return the name of a case with its description; the name alone if its kind is unknown."""
    words = CASES.get(kind(case), "")
    return f"{case} ({words})" if words else case
