"""Who is named when a rank ends: ranks that meet at a store in one process, some of which no longer live."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from runner.errors import Diverged
from runner.machine import group as group_module
from runner.machine.group import Group, Place

ENDED = RuntimeError("Connection closed by peer [127.0.0.1]:4242")
TIMED_OUT = RuntimeError("Timed out waiting 12000ms for recv operation to complete")


@pytest.fixture(autouse=True)
def _short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "_LOOK_SECONDS", 0.6)


@pytest.fixture
def ranks() -> list[Group]:
    """Three ranks; none of them beats by itself."""
    store = dist.HashStore()
    return [Group(Place(rank=rank, size=3), store, 12.0) for rank in range(3)]


@pytest.fixture
def rank_2_lives(ranks: list[Group]) -> Iterator[None]:
    """Let rank 2 beat, as it does while it waits for rank 0, which has left, or while it computes."""
    ends = threading.Event()

    def beat() -> None:
        while not ends.wait(0.02):
            ranks[2].beat()

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    ends.set()
    thread.join()


@pytest.mark.usefixtures("rank_2_lives")
def test_a_rank_that_has_not_noticed_yet_is_not_named(ranks: list[Group]) -> None:
    assert str(ranks[0].lost(ENDED)).startswith("rank 1 of 3 ended; ")
    assert str(ranks[0].lost(TIMED_OUT)).startswith("rank 1 of 3 did not answer for 12 s (hardware.timeout); ")


def test_a_rank_that_noticed_and_ended_is_not_named(ranks: list[Group]) -> None:
    assert str(ranks[2].lost(ENDED)).startswith("ranks 0, 1 of 3 ended; ")
    assert str(ranks[0].lost(ENDED)).startswith("rank 1 of 3 ended; ")


def test_the_last_beat_of_a_rank_that_ended_is_no_sign_of_life(ranks: list[Group]) -> None:
    ranks[1].beat()
    late = threading.Timer(0.2, ranks[1].beat)
    late.start()
    assert str(ranks[0].lost(ENDED)).startswith("ranks 1, 2 of 3 ended; ")
    late.join()


@pytest.mark.usefixtures("rank_2_lives")
def test_a_rank_that_lives_but_does_not_answer_is_named(ranks: list[Group]) -> None:
    ranks[1].lost(ENDED)
    assert str(ranks[0].lost(TIMED_OUT)).startswith("rank 2 of 3 did not answer for 12 s (hardware.timeout); ")


def test_the_error_of_a_rank_stands_for_all(ranks: list[Group]) -> None:
    assert ranks[1].first_to_end("the disk is full")
    assert not ranks[2].first_to_end("rank 1 of 3 ended")
    assert str(ranks[0].lost(ENDED)) == "rank 1: the disk is full"


def test_training_that_diverged_on_a_rank_diverged_on_all(ranks: list[Group]) -> None:
    assert ranks[1].first_to_end("the loss became nan", diverged=True)
    for rank in (0, 2):
        lost = ranks[rank].lost(ENDED)
        assert isinstance(lost, Diverged)
        assert str(lost) == "rank 1: the loss became nan"


@pytest.mark.usefixtures("rank_2_lives")
def test_a_broken_connection_between_ranks_that_live(ranks: list[Group]) -> None:
    ranks[1].lost(ENDED)
    assert str(ranks[0].lost(ENDED)).startswith("the ranks lost each other (Connection closed by peer ")


def test_who_says_nothing_lets_the_other_speak_first(ranks: list[Group]) -> None:
    assert ranks[1].first_to_end("the disk is full")
    assert not ranks[0].first_to_end("rank 1 of 3 ended")
    waits = threading.Thread(target=ranks[0].let_speak)
    waits.start()
    waits.join(0.3)
    assert waits.is_alive()
    ranks[1].let_speak()
    waits.join(2.0)
    assert not waits.is_alive()


def test_rank_0_speaks_where_no_error_ends_the_run(ranks: list[Group]) -> None:
    """It has written how the run ended before the others end, because torchrun then ends it too."""
    ranks[0].let_speak()
    begin = time.monotonic()
    ranks[1].let_speak()
    assert time.monotonic() - begin < 2.0
