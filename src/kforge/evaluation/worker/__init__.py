"""The untrusted process: loads a program, calls it when the referee orders it, and reports the results."""
