"""The graph that rules and writers work on, its scalar functions, and its meaning by torch."""
