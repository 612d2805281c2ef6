"""Commands for people and programs that work with kforge from outside: answers by file, servers, trajectories."""
