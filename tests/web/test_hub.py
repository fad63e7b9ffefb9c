"""One reader per session, however many pages watch it."""

import asyncio
import json
from datetime import UTC

from flightlog.app.runtime import open_runtime
from flightlog.web.data import SessionCache
from flightlog.web.live_updates import QUEUE_MAX, UpdateHub, render_changes
from flightlog.web.templates import make_environment
from support.recordings import archive


def hub(source):
    return UpdateHub(
        render_changes(make_environment(UTC, open_runtime().clock.now_ms)),
        SessionCache(lambda _: source, lambda _: None),
    )


async def read_message(queue):
    message = await asyncio.wait_for(queue.get(), 20)
    head, _, data = message.partition(b"data: ")
    assert head == b"event: news\n"
    return json.loads(data)


def test_pages_share_one_reader_and_each_gets_the_news(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    session = source.latest_session()
    file = next(tmp_path.glob("projects/*/*.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:8]))

    async def watch():
        watched = hub(source)
        queues = [await watched.subscribe(source, session) for _ in range(50)]
        first = await read_message(queues[0])
        with file.open("ab") as out:
            out.write(b"".join(lines[8:]))
        grown = [await _until_full(queue) for queue in queues]
        readers = watched.reader_count
        for queue in queues:
            watched.unsubscribe(session, queue)
        return first, grown, readers, watched.reader_count

    first, grown, readers, after = asyncio.run(watch())

    assert first["total"] < 11
    assert {event["total"] for event in grown} == {11}
    assert (readers, after) == (1, 0)


async def _until_full(queue):
    while True:
        news = await read_message(queue)
        if news["total"] == 11:
            return news


def test_a_page_that_connects_later_gets_the_current_state(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")

    async def watch():
        watched = hub(source)
        first = await watched.subscribe(source, source.latest_session())
        await read_message(first)
        assert watched._readers[source.latest_session()]._rest_until == 0, (
            "one long first look, and the next line is late"
        )
        later = await read_message(await watched.subscribe(source, source.latest_session()))
        watched.close()
        return later, await first.get()

    later, closing = asyncio.run(watch())

    assert later["total"] == len(later["rows"]) == 11
    assert closing is None


def test_a_page_that_does_not_read_must_begin_again(tmp_path):
    source = archive(tmp_path, "2.1.325/single-turn")

    async def watch():
        watched = hub(source)
        queue = await watched.subscribe(source, source.latest_session())
        await read_message(queue)
        reader = watched._readers[source.latest_session()]
        for _ in range(QUEUE_MAX + 1):
            reader._send_to_pages(b"x")
        watched.unsubscribe(source.latest_session(), queue)
        return queue.qsize(), queue.get_nowait()

    assert asyncio.run(watch()) == (1, None)
