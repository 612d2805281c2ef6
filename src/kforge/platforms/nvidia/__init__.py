"""Code that the platforms on NVIDIA GPUs share. This folder is no platform itself: it has no `platform.toml`."""
