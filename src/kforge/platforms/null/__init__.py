"""Plain PyTorch on the host: the whole stack without hardware or compiler."""
