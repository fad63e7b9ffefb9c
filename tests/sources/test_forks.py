"""Work shared out among forked children."""

import os
import signal

import msgspec
import pytest

from flightlog.sources import workers
from flightlog.sources.workers import run_forked

decode = msgspec.msgpack.Decoder(tuple[int, str]).decode


def pack_numbers(*numbers):
    made = [msgspec.msgpack.encode((number, str(number))) for number in numbers]
    return b"".join(len(part).to_bytes(4, "big") + part for part in made)


def deliver(sent, end):
    results, outbox = os.pipe()
    child = os.fork()
    if not child:
        os.write(outbox, sent)
        end()
    os.close(outbox)
    return [number for number, _ in workers._receive([(child, results)], decode)]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("size", [1, 100_000])
def test_every_number_is_worked_on_once_whatever_the_size_of_the_answers(size):
    answers = dict(run_forked(50, lambda number: (number, "x" * number * size), decode, 3))

    assert answers == {number: "x" * number * size for number in range(50)}


def test_the_work_is_done_in_other_processes():
    assert str(os.getpid()) not in {
        pid for _, pid in run_forked(4, lambda number: (number, str(os.getpid())), decode, 2)
    }


def test_complete_answers_of_a_dead_child_count():
    parcel = pack_numbers(0, 1, 2)

    assert deliver(parcel[:-1], die) == [0, 1]
    assert deliver(parcel + parcel[:2], die) == [0, 1, 2]


def test_garbled_answer_of_a_child_is_dropped():
    garbled = (1).to_bytes(4, "big") + b"\xc1"

    assert deliver(garbled + pack_numbers(0, 1), lambda: os._exit(0)) == [0, 1]


def test_a_child_that_dies_takes_nothing_from_the_others():
    def work(number):
        if number == 7:
            die()
        return number, ""

    numbers = {number for number, _ in run_forked(100, work, decode, 2)}

    assert 7 not in numbers
    assert numbers >= set(
        range(8, 100)
    )  # what lay in the dead one's hands may be lost, what was not taken is not
