"""The untrusted process: it loads a program, calls it when told, and describes the results."""
