"""Gives the program and the reference the same weights, changes them between cases, and compares them. (torch)

State that a reference updates (running statistics, a parameter in an optimizer's step) is output as well, and is
compared after a random part of the calls. State that it does not change, a program must not change either.
"""

from __future__ import annotations

import copy
import random
import time
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Agreement, compare
from kforge.evaluation.constants import ERROR_FACTOR, WEIGHT_CHANGES
from kforge.evaluation.correctness.ordered_lookups import Lookups, OrderedLookups
from kforge.evaluation.correctness.side_effects import (
    UNITS_OF_MANY_CALLS,
    differently_changed,
    left_as_it_was,
    surely_changed,
)
from kforge.evaluation.reference.changed_places import changing_buffers, group, with_changed_places
from kforge.evaluation.reference.other_values import has_one_sign, is_real_or_complex
from kforge.evaluation.reference.reference import Reference, subseed
from kforge.evaluation.reference.rows_in_use import rows_in_use, tables
from kforge.evaluation.reference.weights import (
    OF_TORCH,
    Change,
    ascending_buffers,
    far_changes,
    fixed_buffers,
    hand_over,
    large_states,
    new_state,
    numeric_buffers,
    structured_buffers,
    switches,
    unlimited_buffers,
    varied_buffers,
    with_changes,
)
from kforge.evaluation.transport.shared_memory import ANY_SHAPE
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.problems.inputs.sorted_inputs import in_any_order
from kforge.problems.tensors import HOST, cloned, same, tensors_in
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.evaluation.reference.weights import State
    from kforge.evaluation.transport.wire import TensorRef
    from kforge.problems.instance import Instance

NAMED = 5
"""Most missing entries of a program's state that a message names."""
MOST_GROWTH = 1e3
"""A state that makes outputs larger by more than this factor is not used, because it may amplify rounding, too."""
MANY_CALLS = 10**6
"""A counter of calls in a module's state may start at a large number only if the reference would also accept the
counter after this many more calls."""
FEWEST_TRIES, MOST_TRIES, TRYING_SECONDS = 8, 24, 1.0
"""How often the reference is run to find out which changes of weights it accepts: FEWEST_TRIES times, and up to
MOST_TRIES times within TRYING_SECONDS. 22 tries find one entry among 200 that must not change."""
RETRIED = 2
"""Number of refused changes that are tried again, one by one, whenever all weights are changed. They may have been
refused because of the values that were drawn then, or not tried alone because the tries were used up."""


class Handover:
    """The weights of the program and of the reference, while one program is judged: copies, changes and compares
    them."""

    def __init__(
        self,
        instance: Instance,
        client: WorkerClient,
        secret: str,
        precision: str,
        sample: Callable[[], list[Any]] | None = None,
    ) -> None:
        """Construct the program in the worker and the reference here, and give both the same weights.

        `sample` draws inputs on which the reference tries whether it accepts new weights; by default, whole inputs.
        Raises Fault if the program cannot be constructed or does not take the weights.
        """
        self.instance = instance
        self.client = client
        self.secret = secret
        self.precision = precision
        self.repacked = False
        """Whether the program keeps its weights under other names or in other shapes, so that only some can be copied
        to it."""
        self.changed: set[Change] = set()
        """The changes by which weights have ever left the range that the constructor draws from."""
        self._has_gone_far = False
        self.tolerances: dict[str, float] = {}
        """For each entry that the reference updates, the largest tolerance so far."""
        self._sample = sample or (lambda: instance.inputs(subseed(secret, "sample")))
        self._ascending: dict[str, bool] = {}
        """Buffers in ascending order, and whether the reference accepts them in any order."""
        self.before: State = {}
        """The reference's state when weights were last copied to the program."""
        self.reference = self.construct(0)

    def construct(self, state: int) -> Reference:
        """Construct both sides with one secret seed, then give both the same weights, drawn with another seed. Returns
        the reference.

        A program that keeps its weights under other names or shapes keeps the weights it drew, as the reference drew
        them. It gets only weights that every construction sets to the same values. Random numbers that a module keeps
        outside its state cannot be copied; both sides draw the same. Raises Fault if the program's state lacks an entry
        that must be copied.
        """
        seed = subseed(self.secret, "construct", state)
        theirs = self.client.construct(self.instance, seed)
        if self.instance.problem.state_digest is not None:
            reference = Reference(self.instance, seed)
            names = list(reference.state())
        else:
            reference = self._reference_of_other_weights(seed, subseed(self.secret, "weights", state))
            names = list(reference.state())
            if _lacking(reference.state(), names, theirs):
                reference = Reference(self.instance, seed, varied=True)
                names, self.repacked = [*reference.varied, *self._masks(reference)], True
                self._go_further(reference, names, seed)
        ours = reference.state()
        if missing := _lacking(ours, names, theirs):
            raise Fault(_cannot_be_handed_over(missing))
        self.reference, self._names, self._changes = reference, names, 0
        self._structured = structured_buffers(self.instance, reference.model)
        self._ascending = self._in_ascending_order(reference)
        self._seed = seed
        self._give(ours)
        return reference

    def _in_ascending_order(self, reference: Reference) -> dict[str, bool]:
        """Return the reference's buffers in ascending order, and whether it accepts them in any order."""
        names = ascending_buffers(reference.model)
        free = in_any_order(copy.deepcopy(reference.model), self._sample(), names) if names else set()
        return {name: name in free for name in names}

    def _reference_of_other_weights(self, seed: int, other: int) -> Reference:
        """Return a reference with weights from the seed `other`. Random numbers outside its state are from the seed
        `seed`."""
        weights = Reference(self.instance, other, varied=True)
        if not self.instance.likeness.draws_outside:
            return weights
        reference = Reference(self.instance, seed)
        hand_over(weights.state(), reference.model, reference.exact_model)
        return reference

    def _go_further(self, reference: Reference, names: list[str], seed: int) -> None:
        """Change the weights that every construction sets to the same values: other signs, zeros and flipped masks, as
        far as the reference accepts them."""
        self.reference = reference
        base = {name: value for name, value in reference.state().items() if name in names}
        hand_over(self._far_state(base, seed), reference.model, reference.exact_model)

    def _masks(self, reference: Reference) -> list[str]:
        """Return the names of the buffers that are all true, or all false, in every draw."""
        state = reference.state()
        return [name for name in varied_buffers(self.instance, reference.model) if state[name].dtype == torch.bool]

    def renew(self, inputs: list[Any] | None = None) -> State:
        """Give both sides new weights. Returns the reference's whole state, for a baseline.

        The first change of each round changes all weights; the others change positions in some entries. `inputs` are
        those of the next call, if known: then rows that it looks up are changed. A program that keeps its weights under
        other names or shapes gets no new weights.
        """
        if not self.repacked:
            round_of_changes, number = divmod(self._changes, WEIGHT_CHANGES)
            self._changes += 1
            seed = subseed(self.secret, "renewed", self._changes)
            updated = self.updated_names() if self.reference.has_history else []
            if number == 0:
                base = new_state(self.instance, seed, self._state())
                # masks have more marks than drawn while a program is verified, and fewer in every second round of
                # timed calls, so that a program can rely on neither
                fresh = self._far_state(base, seed, self._counters(), fewer=round_of_changes % 2 == 1)
            else:
                fresh = self._with_changed_places(round_of_changes, number - 1, seed, inputs)
            hand_over(fresh, self.reference.model, self.reference.exact_model)
            self._give(_with_same_memory(self._state(), [*fresh, *updated]))
        return self._state()

    def _with_changed_places(self, round_of_changes: int, number: int, seed: int, inputs: list[Any] | None) -> State:
        """Return entries with one position changed. Buffers are left out if the reference then has no usable result."""
        model = self.reference.model
        parameters = [name for name, each in model.named_parameters() if is_real_or_complex(each) and each.numel()]
        round_seed = subseed(self.secret, "groups", round_of_changes)
        state = self._state()
        for buffers in (changing_buffers(self.instance, model), []):
            if not (parameters or buffers):
                break
            names = group(parameters, buffers, self._tables, number, round_seed)
            looks_up = inputs is not None and not self._tables.isdisjoint(names)
            used = rows_in_use(self.reference, inputs) if inputs is not None and looks_up else {}
            fresh = with_changed_places(self.instance, model, names, number, seed, self._tables, used)
            on_host = any(_is_integer(state[name]) for name in names)  # an index out of bounds ruins a device
            safe = set(buffers).isdisjoint(names) and not self._searches_sorted
            if safe or self._size_of_outputs(fresh, on_host=on_host) is not None:
                return fresh
        return {}

    def enlarged(self) -> Iterator[None]:
        """Give both sides parameters with a row far larger than drawn, all at once or one by one; yield after each.

        The parameters are restored when the caller continues. A program that keeps its weights under other names or
        shapes gets none.
        """
        if self.repacked:
            return
        size = self._size_of_outputs({})
        seed = subseed(self.secret, "enlarged", self._seed)
        for fresh in large_states(self.reference.model, seed, self._tables):
            if self._takes(fresh, size, []):
                old = {name: value.clone() for name, value in self._state().items() if name in fresh}
                self._give_both(fresh)
                yield
                self._give_both(old)
                if len(fresh) > 1:  # the state in which all parameters are enlarged
                    return

    def _give_both(self, state: State) -> None:
        hand_over(state, self.reference.model, self.reference.exact_model)
        self._give(_with_same_memory(self._state(), list(state)))

    def _far_state(self, base: State, seed: int, counters: list[str] | None = None, *, fewer: bool = False) -> State:
        """Return a state with as many unusual changes (other signs, zeros, large values) as the reference accepts
        together. Masks have more elements set than in `base`, or `fewer`.

        All are tried at once, then each kind, then halves. So one entry that must not be negative does not prevent the
        others from becoming negative. After the first time, the changes that were accepted before are tried first, and
        then a few of the others.
        """
        unordered = [name for name, free in self._ascending.items() if free]
        changes = far_changes(self.instance, self.reference.model, base, counters or (), unordered)
        size = self._size_of_outputs({})
        accepted, others = self._by_acceptance(changes)
        chance = random.Random(seed)  # noqa: S311 - as secret as its seed
        waiting, retried = deque([accepted]), chance.sample(others, min(RETRIED, len(others)))
        fresh, taken, tries, end = base, list[Change](), 0, time.monotonic() + TRYING_SECONDS
        while (waiting or retried) and tries < (MOST_TRIES if time.monotonic() < end else FEWEST_TRIES):
            part = waiting.popleft() if waiting else [retried.pop()]
            tries += 1
            state = with_changes(base, [*taken, *part], self.instance, seed, fewer=fewer)
            late = [each.name for each in (*taken, *part) if each.kind == "counter"]
            risky = any(each.kind == "unordered" for each in (*taken, *part))
            if self._takes(state, size, late, on_host=risky):
                fresh, taken = state, [*taken, *part]
            else:
                waiting.extend(_parts(part))
        self.changed.update(taken)
        self._has_gone_far = True
        return fresh

    def _by_acceptance(self, changes: list[Change]) -> tuple[list[Change], list[Change]]:
        """Return the changes that the reference has accepted before, and the others. The first time, all count as
        accepted."""
        if not self._has_gone_far:
            return changes, []
        accepted = [each for each in changes if each in self.changed]
        return accepted, [each for each in changes if each not in self.changed]

    @cached_property
    def _tables(self) -> frozenset[str]:
        """The names of the parameters that are lookup tables."""
        return tables(self.reference, self._sample())

    @cached_property
    def _searches_sorted(self) -> bool:
        """Whether the reference searches numbers, and they are sorted with the weights that its constructor draws."""
        if not OrderedLookups(lambda: self.reference, self._sample).found:
            return False
        first = Reference(self.instance, subseed(self.secret, "construct", 0))
        return OrderedLookups(lambda: first, self._sample).exist

    def _counters(self) -> list[str]:
        """Return the names of the integers that calls update, and that every construction sets to the same value."""
        ours = self._state()
        return [
            name
            for name in self.updated_names()
            if name in self.instance.likeness.uniform and _is_integer(ours[name]) and not name.endswith(OF_TORCH)
        ]

    def _takes(self, state: State, size: float | None, counters: list[str], *, on_host: bool = False) -> bool:
        """Return whether the reference gives finite outputs with these weights, and not far larger ones than `size`.

        It must also accept `counters` (names of counters of calls) after MANY_CALLS more calls. With `on_host`, it is
        tried on the host first, because an index out of bounds breaks a device's context.
        """
        if on_host and self.instance.device != HOST and self._size_of_outputs(state, on_host=True) is None:
            return False
        if counters:  # an index out of bounds is an error on the host, and ruins a device
            late = {**state, **{name: state[name] + MANY_CALLS for name in counters}}
            if any(self._size_of_outputs(each, on_host=True) is None for each in (state, late)):
                return False
        if size is None:
            return False
        found = self._size_of_outputs(state)
        return found is not None and found <= MOST_GROWTH * max(size, 1.0)

    def _size_of_outputs(self, state: State, inputs: list[Any] | None = None, *, on_host: bool = False) -> float | None:
        """Return the largest magnitude in the outputs; None if one is not finite, or if the reference fails.

        Also None if these weights make the reference search unsorted numbers: then its result is undefined.
        """
        model, lookups = copy.deepcopy(self.reference.model), Lookups()
        inputs = self._sample() if inputs is None else cloned(inputs)
        if on_host:
            model, inputs = model.to(HOST), pytree.tree_map(_on_host, inputs)
        hand_over(state, model)
        try:
            with lookups:
                outputs = tensors_in(self.reference.own_result(inputs, model))
        except ProblemError:
            return None
        if state and lookups.unsorted and self._searches_sorted:
            return None
        sizes = [float(each.abs().max()) for each in outputs if each.numel() and each.dtype != torch.bool]
        largest = max(sizes, default=0.0)
        return largest if all(size < float("inf") for size in sizes) else None

    def takes_on_host(self, inputs: list[Any]) -> bool:
        """Return whether the reference accepts these inputs on the host, where a failure is only an exception."""
        return self.instance.device == HOST or self._size_of_outputs({}, inputs, on_host=True) is not None

    @property
    def has_fixed_buffers(self) -> bool:
        """Whether a program could rely on a buffer: on its values, its zeros, its order or its symmetry."""
        model = self.reference.model
        varied = {each.name for each in self.changed if each.kind not in ("switch", "unordered")}
        switched = {each.name for each in self.changed if each.kind == "switch"}
        ordinary = {each.name for each in self.changed if each.kind == "ordinary"}
        fixed = not (set(fixed_buffers(self.instance, model)) <= varied and set(unlimited_buffers(model)) <= ordinary)
        wild = {each.name for each in self.changed if each.kind == "wild_buffer"}
        structured = any(stays or name not in wild | switched for name, stays in self._structured.items())
        ordered = set(self._ascending) - {each.name for each in self.changed if each.kind == "unordered"}
        return fixed or structured or bool(ordered) or not set(switches(self.instance, model)) <= switched

    @property
    def has_fixed_signs(self) -> bool:
        """Whether all elements of some weight have one sign, and the reference did not accept another sign in any of
        them."""
        wild = {each.name for each in self.changed if each.kind in ("wild", "wild_buffer")}
        model = self.reference.model
        numbers = {name for name, _ in model.named_parameters()} | set(numeric_buffers(model))
        state = self._state()
        return any(name not in wild and has_one_sign(state[name]) for name in numbers & set(self._names))

    @property
    def has_drawn_integers(self) -> bool:
        """Whether the constructor draws integers of the state, such as codes of a table. They never leave the drawn
        range."""
        drawn = (name for name in self._state() if name not in self.instance.likeness.fixed)
        given = self.instance.problem.state_digest is not None
        return not given and any(_is_integer(self._state()[name]) for name in drawn)

    def line_up(self, baseline: WorkerClient) -> None:
        """Construct the program and the baseline again with the same state, for results that depend on earlier
        calls.

        A program that keeps its weights under other names or shapes gets only some entries. The baseline gets the same
        ones, and both keep the others as constructed.
        """
        self.client.construct(self.instance, self._seed)
        baseline.construct(self.instance, self._seed)
        state = self._state()
        self._give(state)
        baseline.set_state({name: state[name] for name in self._names} if self.repacked else state)

    def updated_names(self) -> list[str]:
        """Return the names of the entries that the reference has updated since weights were last copied."""
        return list(self.reference.buffers_it_updates(self.before))

    def must_have_updated_alike(self, when: str) -> None:
        """Compare the entries that calls have updated since weights were last copied. Raises Fault if they differ."""
        updated = self.reference.buffers_it_updates(self.before)
        if not updated:
            return
        theirs = self.client.state(list(updated))
        calls = max(1, self.reference.calls - self._calls_before)
        for name, truth in updated.items():
            case, got = f"state {name} {when}", theirs.get(name)
            found = compare(truth, got, self.precision, case)
            if isinstance(found, Mismatch):
                raise Fault(found)
            off = differently_changed(self.before[name], truth, got, self.precision, case, place="state", calls=calls)
            if off is not None:
                raise Fault(off)
            own = compare(truth, truth.own, self.precision, "")
            if isinstance(own, Agreement):
                most = max(self.tolerances.get(name, 0.0), found.tolerance, ERROR_FACTOR * own.error)
                self.tolerances[name] = most

    def has_left_out(self, name: str, expected: torch.Tensor, got: Any) -> bool:
        """Return whether timed calls of the program did not change an entry that the baseline's calls changed."""
        if not isinstance(got, torch.Tensor) or not (expected.is_floating_point() or expected.is_complex()):
            return False
        given = self.before[name].to(expected.device)
        return left_as_it_was(given, surely_changed(given, expected, expected, UNITS_OF_MANY_CALLS), got)

    def must_have_left_the_rest(self) -> None:
        """Raise Fault if the program changes weights or buffers that the reference does not change."""
        ours = self._state()
        left = [name for name in self._names if same(ours[name], self.before[name])]
        theirs = self.client.state(left) if left else {}
        for name in left:
            found = theirs.get(name)
            # a program may hold its weights at another precision
            if found is None or not same(found, ours[name].to(found.dtype)):
                what = f"the program changes {name} of its state, which the reference leaves as it was"
                raise Fault(Rejected(rule="state_modified", reason=what))

    def _state(self) -> State:
        return self.reference.state()

    def _give(self, state: State) -> None:
        """Copy these entries of the state to the program, and remember the reference's whole state."""
        self._calls_before = self.reference.calls
        known = {} if self.reference.has_history else self.before
        ours = self._state()
        self.before = {name: ours[name].clone() if name in state or name not in known else known[name] for name in ours}
        self.client.set_state({name: state[name] for name in self._names if name in state})


def _lacking(ours: State, names: list[str], theirs: dict[str, TensorRef]) -> list[str]:
    """Return the names that the program's state does not have, or has in another shape.

    A lazy parameter accepts any shape.
    """
    return [
        name for name in names if name not in theirs or theirs[name].shape not in (tuple(ours[name].shape), ANY_SHAPE)
    ]


def _with_same_memory(state: State, names: list[str]) -> State:
    """Return these entries of a state, and those that share their memory. A program may hold tied weights twice."""
    places = {state[name].data_ptr() for name in names if state[name].numel()}
    return {name: value for name, value in state.items() if name in names or value.data_ptr() in places}


def _parts(changes: list[Change]) -> Iterator[list[Change]]:
    """Yield parts of changes that were refused together: each kind, or halves. Nothing for a single change."""
    kinds = list(dict.fromkeys(each.kind for each in changes))
    if len(kinds) > 1:
        yield from ([each for each in changes if each.kind == kind] for kind in kinds)
    elif len(changes) > 1:
        half = len(changes) // 2
        yield from (changes[:half], changes[half:])


def _is_integer(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)


def _on_host(leaf: Any) -> Any:
    return leaf.to(HOST) if isinstance(leaf, torch.Tensor) else leaf


def _cannot_be_handed_over(missing: list[str]) -> Mismatch:
    """Return the verdict for a program whose state lacks entries."""
    names = ", ".join(missing[:NAMED])
    reason = (
        f"the program's state_dict has no {names} of the reference's shape: a program is judged with other weights, "
        "which are copied to it by name; so weights that come with the problem, or that the reference's constructor "
        "does not draw at random (such as ones and zeros), must keep their names and shapes"
    )
    return Mismatch(kind="structure", reason=reason)
