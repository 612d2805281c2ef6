"""The exceptions that kforge raises on purpose.

KforgeError
├── InputError                 exit status 2: the user can fix it, and the message says how in one line
│   ├── ProblemError           the problem file, module or override
│   ├── PlatformError          an unknown or unavailable platform, a bad manifest
│   ├── ModelError             an unknown or unconfigured model, a missing extra or key
│   ├── ProfileError           an export of a profiler that cannot be read
│   ├── RunError               a run folder that is missing, foreign or damaged
│   └── ServiceBusy            a server has as many requests as it takes; the client tries again later
├── WaitingForReplies          exit status 75: requests are written, replies are not there yet
├── RecordingExhausted         a replayed exchange has no reply for this request
├── NothingLeft                an agent has no further change to try; the run ends with what it has
├── CallRefused                a model is not asked, because of a limit; the run ends with what it has
│   ├── BudgetSpent            the call could pass a budget; a larger budget lets the run go on
│   └── PromptTooLong          the prompt does not fit into the model's context limit
├── ProviderError              exit status 2: a provider failed, also after retries
├── EvaluationError            exit status 2: the evaluator itself failed, no statement about the candidate
│   ├── ChannelError           a frame that does not keep to the format
│   └── TookTooLong            a request to a server took longer than it may
└── NothingCorrect             exit status 1: a run ended without a correct program

A candidate that fails is not an exception but a `Verdict` (records/). All of these can be pickled.
"""

from __future__ import annotations


class KforgeError(Exception):
    """Base class of all exceptions of kforge."""


class InputError(KforgeError):
    """Bad input or wrong usage; the message is one line for the user."""


class ProblemError(InputError):
    """The problem cannot be loaded, or cannot be judged."""


class PlatformError(InputError):
    """The platform is unknown, unavailable, or its manifest is wrong."""


class ModelError(InputError):
    """The model is unknown, not configured, or its extra is not installed."""


class ProfileError(InputError):
    """The file is no export of a profiler that kforge reads."""


class RunError(InputError):
    """The run folder is missing, made by others, or damaged."""


class ServiceBusy(InputError):
    """The server has as many requests as it accepts; the client should try again later."""


class WaitingForReplies(KforgeError):
    """The exchange holds questions without a reply."""

    def __init__(self, pending: tuple[str, ...], empty: tuple[str, ...] = ()) -> None:
        """`pending`: the names of the questions. `empty`: the names of those whose reply file has no text."""
        super().__init__(pending, empty)
        self.pending = pending
        self.empty = empty

    def __str__(self) -> str:
        many = f"{len(self.pending)} repl{'y' if len(self.pending) == 1 else 'ies'}"
        named = (f"{name} (its reply is empty)" if name in self.empty else name for name in self.pending)
        return f"waiting for {many}: {', '.join(named)}"


class RecordingExhausted(KforgeError):
    """A replayed exchange holds no reply for this request."""


class NothingLeft(KforgeError):
    """An agent has no further change to try; the run ends with what it has."""


class CallRefused(KforgeError):
    """A model was not asked, because a limit forbids it; the run ends with what it has."""


BUDGET_SPENT = "budget spent"
"""First words of the reason why a run stopped at a budget. A larger budget lets such a run go on."""


class BudgetSpent(CallRefused):
    """The next call could pass a budget of the run."""

    def __str__(self) -> str:
        return f"{BUDGET_SPENT}: {super().__str__()}"


class PromptTooLong(CallRefused):
    """The prompt does not fit into the context limit of the model."""


class ProviderError(KforgeError):
    """The provider could not answer, and trying again would not help."""


class EvaluationError(KforgeError):
    """The evaluator failed; this says nothing about the candidate."""


class TookTooLong(EvaluationError):
    """A request to a server took longer than it may."""


class ChannelError(EvaluationError):
    """The other process sent a frame that breaks the format."""


class NothingCorrect(KforgeError):
    """The run ended, and none of its attempts was correct."""
