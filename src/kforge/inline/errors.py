"""Everything kforge.inline raises on purpose.

InlineError
├── CompileError        the source does not build, or declares a kernel that cannot be called
├── ToolchainError      no compiler, no place for the build cache: says nothing about the source
└── LaunchError         a kernel was called with arguments that do not fit it
    └── UnknownKernel   the library has no such kernel (also an AttributeError)

All of these can be pickled.
"""

from __future__ import annotations


class InlineError(Exception):
    """Root of the tree."""


class CompileError(InlineError):
    """The source does not build; the message holds the lines that matter, `log` all of them."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message, log)
        self.log = log or message

    def __str__(self) -> str:
        return str(self.args[0])


class ToolchainError(InlineError):
    """This machine cannot build now, for a reason that has nothing to do with the source."""


class LaunchError(InlineError):
    """The arguments do not fit the kernel; the message is one line that names both."""


class UnknownKernel(LaunchError, AttributeError):
    """The library has no kernel of this name."""
