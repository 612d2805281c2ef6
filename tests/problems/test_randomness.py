"""Generators that other threads seed meanwhile."""

from __future__ import annotations

import threading

import torch

from kforge.problems.randomness import generator_states, seeded, undisturbed


def test_no_other_thread_seeds_the_generators_where_a_draw_is_looked_for() -> None:
    stop = threading.Event()

    def seed_again_and_again() -> None:
        while not stop.is_set():
            with seeded(7):
                stop.wait(0.001)

    thread = threading.Thread(target=seed_again_and_again)
    thread.start()
    try:
        for _ in range(20):
            with undisturbed():
                before = generator_states()
                stop.wait(0.002)
                assert generator_states() == before
                torch.rand(1)
                assert generator_states() != before
    finally:
        stop.set()
        thread.join()
