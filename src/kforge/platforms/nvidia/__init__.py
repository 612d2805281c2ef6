"""What the platforms on NVIDIA's GPUs share. No platform itself: it has no `platform.toml`."""
