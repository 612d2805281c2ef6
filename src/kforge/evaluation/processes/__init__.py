"""Starts, stops and ends processes: new interpreters, forks, the fork server of workers. Also measures machine load."""
