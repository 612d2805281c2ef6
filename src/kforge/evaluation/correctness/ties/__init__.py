"""Judges outputs of indices that are chosen by scores (argmax, top-k, sort), and outputs that depend on the choice."""
