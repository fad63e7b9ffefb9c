"""Work shared out among forked children."""

import os
import signal

import msgspec
import pytest

from flightlog.sources import workers
from flightlog.sources.workers import run_forked

decode = msgspec.msgpack.Decoder(tuple[int, str]).decode


def packed(*numbers):
    made = [msgspec.msgpack.encode((number, str(number))) for number in numbers]
    return b"".join(len(each).to_bytes(4, "big") + each for each in made)


def delivered(sent, end):
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
    found = dict(run_forked(50, lambda number: (number, "x" * number * size), decode, 3))

    assert found == {number: "x" * number * size for number in range(50)}


def test_the_work_is_done_in_other_processes():
    assert str(os.getpid()) not in {
        said for _, said in run_forked(4, lambda number: (number, str(os.getpid())), decode, 2)
    }


def test_what_a_dead_child_delivered_whole_counts_and_the_rest_is_left():
    parcel = packed(0, 1, 2)

    assert delivered(parcel[:-1], die) == [0, 1]
    assert delivered(parcel + parcel[:2], die) == [0, 1, 2]


def test_what_a_child_garbled_is_left():
    garbled = (1).to_bytes(4, "big") + b"\xc1"

    assert delivered(garbled + packed(0, 1), lambda: os._exit(0)) == [0, 1]


def test_a_child_that_dies_takes_nothing_from_the_others():
    def work(number):
        if number == 7:
            die()
        return number, ""

    found = {number for number, _ in run_forked(100, work, decode, 2)}

    assert 7 not in found
    assert found >= set(
        range(8, 100)
    )  # what lay in the dead one's hands may be lost, what was not taken is not
