"""Starting, freezing and ending processes: interpreters, forks, the fork server of workers, machine load."""
