"""The smith's graph (intermediate representation): its nodes, its scalar functions, and an interpreter in torch that
defines what a graph means."""
