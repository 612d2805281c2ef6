"""Makes the graph of a problem: torch.export records the operators, and known operators are lowered to simpler
nodes."""
