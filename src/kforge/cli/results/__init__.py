"""The commands that work on finished runs."""
