"""Reads a worker's outputs and state, and finds out where they lie in its memory. (torch)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError
from kforge.evaluation.transport.shared_memory import bytes_named, described_if_over
from kforge.evaluation.transport.wire import TensorRef
from kforge.evaluation.worker_client.input_region import SLACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.transport.aliases import Aliases, Mapping
    from kforge.evaluation.transport.shared_memory import SharedRegion
    from kforge.evaluation.transport.wire import Result
    from kforge.evaluation.worker_client.orders import Orders
    from kforge.evaluation.worker_client.output_access import OutputAccess


MOST_SETTINGS, LONGEST_SETTING = 16, 100
"""Most settings of torch that a worker may name as changed, and most characters of a name or value."""


@dataclass(frozen=True)
class Output:
    """The result of one call, copied so that the worker cannot change it before it is checked."""

    value: Any
    aliases: Aliases
    """Which outputs lie in which inputs, as the worker says. In timed blocks the referee finds out itself
    (`TimedBlock.aliases`)."""
    changed_inputs: Any
    """The inputs after the call; None if the call has not changed them as far as the referee can see."""
    changed_settings: tuple[tuple[str, str, str], ...] = ()
    """Name, former and present value of settings of torch that the call has changed, as the worker says."""


class OutputReader:
    """Reads tensors of one worker: from a shared region, or in the memory of the stopped worker."""

    def __init__(self, orders: Orders, access: OutputAccess, pid: int, most: int) -> None:
        """`most` is the size in bytes of a right answer. Larger answers are not read."""
        self._orders = orders
        self._access = access
        self._pid = pid
        self.most = most + SLACK
        """Most bytes of one answer that are read."""
        self._region: SharedRegion | None = None
        """The shared region for outputs; None if outputs are read in place."""

    def attach(self) -> None:
        """Make the region for outputs, unless outputs are read in place."""
        if not self._access.shown:
            self._region = self._access.region(self.most)
            self._orders.attach("outputs", self._region)

    def forget(self) -> None:
        """Release the memory that single calls needed."""
        self._access.forget()
        if self._region is not None:
            self._region.clear()

    def learn(self, memory: Any) -> None:
        """Remember the allocations that contain the outputs. Raises Fault if the worker's list is malformed."""
        try:
            self._access.learn(memory)
        except ChannelError as error:
            raise self._orders.violation(str(error)) from None

    def copy(self, result: Result, *, in_place: bool = False) -> Any:
        """Return the output of a call. With `in_place` it may be a view that is valid only while the worker is
        stopped."""
        if self._region is not None:
            value, view = result.value, self._region.view
        else:
            self.learn(result.memory)
            value, view = described_if_over(self.most, result.value), self._where_it_lies

        def take(ref: TensorRef) -> torch.Tensor:
            # an output larger than any right answer, whose values were not sent: expanded zeros have its shape
            if ref.offset < 0:
                return torch.zeros((), dtype=getattr(torch, ref.dtype), device=self._access.device).expand(ref.shape)
            return view(ref).to(self._access.device, copy=not in_place)

        return self._resolve(value, take)

    def read(self, tree: Any) -> Any:
        """Return a nested value with the tensors that lie at its places in the memory of the stopped worker."""
        return self._resolve(tree, self._where_it_lies)

    def aliases(self, claim: Any) -> Aliases:
        """Return which outputs lie in which inputs, as the worker claims. Raises Fault if the claim is malformed."""
        match claim:
            case list() if all(isinstance(pair, tuple) and list(map(type, pair)) == [int, int] for pair in claim):
                return frozenset(claim)
        raise self._orders.violation("it does not say which outputs lie in which inputs")

    def settings(self, claim: Any) -> tuple[tuple[str, str, str], ...]:
        """Return which settings of torch a call has changed, as the worker claims. Raises Fault if the claim is
        malformed."""
        match claim:
            case list() | tuple() if len(claim) <= MOST_SETTINGS and all(map(_is_change, claim)):
                return tuple(claim)
        raise self._orders.violation("it does not say which settings of torch a call has changed")

    def files(self) -> list[Mapping]:
        """Return the worker's shared mappings, which may show the same memory twice; empty if they cannot be seen."""
        return self._mapped(self._access.files_in)

    def inputs(self) -> list[Mapping]:
        """Return where the worker has mapped the region for inputs; empty if that cannot be seen."""
        return self._mapped(self._access.inputs_in)

    def _mapped(self, look: Callable[[int], list[Mapping]]) -> list[Mapping]:
        try:
            return look(self._pid)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None

    def _where_it_lies(self, ref: TensorRef) -> torch.Tensor:
        return self._access.read(self._pid, ref, self.most)

    def _resolve(self, tree: Any, take: Callable[[TensorRef], torch.Tensor]) -> Any:
        """Return a nested value with the tensor that `take` returns for each TensorRef.

        Raises Fault if all tensors together are larger than a right answer: a short message could name the same memory
        a hundred thousand times.
        """
        left = self.most

        def resolve(leaf: Any) -> Any:
            nonlocal left
            if not isinstance(leaf, TensorRef):
                return leaf
            size = bytes_named(leaf)
            if leaf.offset >= 0:
                left -= size
            if left < 0:
                raise ChannelError("the described tensors together are larger than any right answer")
            return take(leaf)

        try:
            return pytree.tree_map(resolve, tree)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None


def _is_change(row: Any) -> bool:
    """Return whether a row is the name, the former and the present value of a setting."""
    texts = row if isinstance(row, tuple) and len(row) == 3 else (None,)
    return all(isinstance(text, str) and len(text) <= LONGEST_SETTING and text.isprintable() for text in texts)
