"""kforge turns a PyTorch module into a verified, faster kernel for the accelerator at hand."""

__version__ = "0.1.0"
