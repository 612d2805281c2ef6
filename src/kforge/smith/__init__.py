"""The smith: the built-in brains of both agents, no model needed. trace → rewrite → fuse → emit → recommend."""

NAME = "builtin"
"""What `--model` calls it."""
