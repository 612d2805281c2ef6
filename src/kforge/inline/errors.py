"""The errors that kforge.inline raises.

    InlineError
    ├── CompileError        the source does not compile, or declares a kernel that cannot be called
    ├── ToolchainError      this machine cannot build: no compiler, no writable cache; not the fault of the source
    └── LaunchError         a kernel was called with arguments that do not fit it
        └── UnknownKernel   the library has no such kernel (also an AttributeError)

All of these can be pickled.
"""

from __future__ import annotations


class InlineError(Exception):
    """Base class of all errors of kforge.inline."""


class CompileError(InlineError):
    """The source does not compile. The message has the lines that matter; `log` is the compiler's whole output."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message, log)
        self.log = log or message

    def __str__(self) -> str:
        return str(self.args[0])


class ToolchainError(InlineError):
    """This machine cannot build, for a reason that is not the fault of the source."""


class LaunchError(InlineError):
    """The arguments do not fit the kernel. The message is one line that names the kernel and the argument."""


class UnknownKernel(LaunchError, AttributeError):
    """The library has no kernel of this name."""
