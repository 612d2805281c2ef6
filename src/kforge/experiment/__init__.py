"""Experiments as files: the same problems under several sets of options, compared problem by problem."""

from kforge.experiment.comparing import ArmReport, Comparisons, compare
from kforge.experiment.definition import Arm, Experiment, read_experiment
from kforge.experiment.running import ExperimentSession

__all__ = ["Arm", "ArmReport", "Comparisons", "Experiment", "ExperimentSession", "compare", "read_experiment"]
