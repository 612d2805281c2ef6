"""The platform for Metal: on the GPU of a Mac, or on other machines in kforge's emulator on the host."""
