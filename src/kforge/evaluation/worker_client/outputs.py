"""Reads what a worker's calls have left: its outputs and its state, and where they lie. (torch)"""

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


@dataclass(frozen=True)
class Output:
    """The result of one call, copied to where the worker cannot change it before it is checked."""

    value: Any
    aliases: Aliases
    """As the worker says; in timed blocks the referee checks it itself, see `TimedBlock.aliases`."""
    changed_inputs: Any
    """The inputs as the call has left them, or None where it has changed nothing that can be seen from here."""


class OutputReader:
    """Reads tensors of one worker: from a shared region, or where they lie in the memory of the frozen worker."""

    def __init__(self, orders: Orders, access: OutputAccess, pid: int, most: int) -> None:
        """`most`: the bytes of any right answer. No answer that is larger is read."""
        self._orders = orders
        self._access = access
        self._pid = pid
        self.most = most + SLACK
        """Most bytes of one answer."""
        self._region: SharedRegion | None = None
        """The region for outputs, unless they are read where they lie."""

    def attach(self) -> None:
        """Make the region for outputs, where one is needed."""
        if not self._access.shown:
            self._region = self._access.region(self.most)
            self._orders.attach("outputs", self._region)

    def forget(self) -> None:
        """Release the memory of single calls."""
        self._access.forget()
        if self._region is not None:
            self._region.clear()

    def learn(self, memory: Any) -> None:
        """Record what the worker says about the memory that its outputs lie in."""
        try:
            self._access.learn(memory)
        except ChannelError as error:
            raise self._orders.violation(str(error)) from None

    def copy(self, result: Result, *, in_place: bool = False) -> Any:
        """Return the output of a call. `in_place`: it need not stay valid when the worker goes on."""
        if self._region is not None:
            value, view = result.value, self._region.view
        else:
            self.learn(result.memory)
            value, view = described_if_over(self.most, result.value), self._where_it_lies

        def take(ref: TensorRef) -> torch.Tensor:
            # described only: an output larger than any right answer; zeros of no storage stand for its shape
            if ref.offset < 0:
                return torch.zeros((), dtype=getattr(torch, ref.dtype), device=self._access.device).expand(ref.shape)
            return view(ref).to(self._access.device, copy=not in_place)

        return self._resolve(value, take)

    def read(self, tree: Any) -> Any:
        """Return a tree with the tensors that lie at its places in the memory of the frozen worker."""
        return self._resolve(tree, self._where_it_lies)

    def aliases(self, claim: Any) -> Aliases:
        """Return which outputs lie in which inputs, as the worker claims."""
        match claim:
            case list() if all(isinstance(pair, tuple) and list(map(type, pair)) == [int, int] for pair in claim):
                return frozenset(claim)
        raise self._orders.violation("it does not say which outputs lie in which inputs")

    def files(self) -> list[Mapping]:
        """Return memory of the worker that may be mapped several times, where that can be seen from outside."""
        return self._mapped(self._access.files_in)

    def inputs(self) -> list[Mapping]:
        """Return where the worker has the region for inputs, where that can be seen from outside."""
        return self._mapped(self._access.inputs_in)

    def _mapped(self, look: Callable[[int], list[Mapping]]) -> list[Mapping]:
        try:
            return look(self._pid)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None

    def _where_it_lies(self, ref: TensorRef) -> torch.Tensor:
        return self._access.read(self._pid, ref, self.most)

    def _resolve(self, tree: Any, take: Callable[[TensorRef], torch.Tensor]) -> Any:
        """A tree with its tensors. All of them together are no larger than the region that a right answer fits into:
        a short frame can name the same memory a hundred thousand times."""
        left = self.most

        def resolve(leaf: Any) -> Any:
            nonlocal left
            if not isinstance(leaf, TensorRef):
                return leaf
            size = bytes_named(leaf)
            if leaf.offset >= 0:
                left -= size
            if left < 0:
                raise ChannelError("more is described than any right answer holds")
            return take(leaf)

        try:
            return pytree.tree_map(resolve, tree)
        except ChannelError as error:
            raise self._orders.unreadable(error) from None
