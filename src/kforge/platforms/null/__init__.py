"""The platform for plain PyTorch on the host. It runs all of kforge without special hardware and without a compiler."""
