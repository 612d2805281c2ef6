"""Inputs that are moved by some units in the last place."""

import torch

from kforge.evaluation.correctness.perturbation import shaken


def test_numbers_that_the_module_names_stay() -> None:
    """Cause: the code of a missing reading was moved, so that torch on moved inputs was as wrong as a program that
    counted missing readings, and a loss of one number was excused."""
    x = torch.rand(1000)
    x[::5] = -999.0
    (moved,) = shaken([x], 0, exact=(-999.0,))
    assert bool((moved[::5] == -999.0).all())
    others = torch.ones(1000, dtype=torch.bool)
    others[::5] = False
    assert (moved != x)[others].float().mean() > 0.5


def test_a_tensor_of_mostly_such_numbers_is_moved_all_the_same() -> None:
    x = torch.full((1000,), 0.5)
    x[0] = 3.0
    (moved,) = shaken([x], 0, exact=(0.5,))
    assert (moved != x).float().mean() > 0.5
