"""Makes the graph of a problem, by torch.export and by lowering of torch's operators."""
