"""Metal on the GPU of a Mac, or elsewhere on the host by our emulator."""
