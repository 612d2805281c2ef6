"""Starts, freezes and ends processes: interpreters, forks, the fork server of workers, machine load."""
