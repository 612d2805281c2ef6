"""The single-shot example of this platform."""
