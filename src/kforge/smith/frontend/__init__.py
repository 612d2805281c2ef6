"""From a problem to its graph: torch.export, and lowering of torch's operators."""
