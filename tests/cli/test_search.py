"""`flightlog session search` and the index behind it, as a person uses them."""

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.cli_runs import within
from support.recordings import CASES, config_dir
from support.transcripts import SESSION, user, write

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


def documented_searches():
    """Return the arguments of every search that README, docs and `--help` show."""
    texts = [path.read_text() for path in PAGES]
    lines = [
        line
        for text in texts
        for line in re.findall(r"flightlog (?:--samples )?session search .*", text)
    ]
    commands = {re.split(r"\s+#|`", line)[0].strip() for line in lines}
    words = [shlex.split(command.replace("--samples ", ""))[3:] for command in sorted(commands)]
    return [given for given in words if given[0] not in {"[OPTIONS]", "-h"}]


def samples(tmp_path, *words, **settings):
    settings |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    return within(tmp_path, "--samples", "session", "search", *words, **settings)


def index_state(folder):
    """Return what every index below `folder` has read, by its name."""
    states = {}
    for path in sorted(folder.rglob("index*.db")):
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT path, offset FROM files WHERE level = 3").fetchall()
            (top,) = database.execute("SELECT max(id) FROM lines").fetchone()
        states[path.name] = (sorted(rows), top)
    return states


@pytest.mark.parametrize("words", documented_searches(), ids=" ".join)
def test_every_documented_search_finds_something(tmp_path, words):
    report = json.loads(samples(tmp_path, *words, "--json").out)

    assert report["total"] >= len(report["hits"]) > 0
    assert set(report["hits"][0]) == {
        *(
            "address",
            "session",
            "project",
            "at_ms",
            "cost_usd",
            "snippet",
            "agent",
            "is_lower_bound",
        ),
    }


def test_one_argument_means_the_same_as_several(tmp_path):
    one = samples(tmp_path, "tool:bash since:2026-11-01", "--json").out

    assert one == samples(tmp_path, "tool:bash", "since:2026-11-01", "--json").out
    assert json.loads(one)["total"] == 7


@pytest.mark.parametrize(
    "words", [("greet", "-hash"), ("-tool:bash", "greet"), ("greet", "-tool:bash", "--limit", "3")]
)
def test_an_excluded_word_can_be_an_argument_of_its_own(tmp_path, words):
    one = " ".join(sorted(words[:2], reverse=True))
    total = json.loads(samples(tmp_path, one, "--json").out)["total"]

    assert json.loads(samples(tmp_path, *words, "--json").out)["total"] == total > 0
    assert samples(tmp_path, *words, "--nonsense").code == 2


def test_the_limit_leaves_out_what_is_counted(tmp_path):
    some, every = (
        samples(tmp_path, "tool:bash", "--limit", "2"),
        samples(tmp_path, "tool:bash", "--limit", "0"),
    )

    assert len(some.out.splitlines()) == 2 * 2
    assert "5 more: flightlog --samples session search tool:bash --limit 0" in some.err
    assert len(every.out.splitlines()) == 7 * 2
    assert samples(tmp_path, "tool:bash", "--limit", "-5").code == 2


def test_a_hit_shows_step_date_project_and_cost(tmp_path):
    assert re.match(
        r"2123f2df#1\.5  2026-11-15 \d\d:\d\d  /home/dev/project  session \$0\.4671\n",
        samples(tmp_path, '"python3 greet.py"').out,
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("/interactive-queued")])
def test_a_prompt_sent_during_a_turn_is_found_at_its_own(tmp_path, case):
    root = config_dir(tmp_path, case)
    ran = within(root, "session", "search", '"Also this, please"', "--json")
    hits = json.loads(ran.out)["hits"]

    assert len(hits) == (case != "2.0.14/interactive-queued")  # recorded it nowhere
    for hit in hits:
        session, _, turn = hit["address"].partition("#")
        shown = within(root, "session", "show", hit["address"]).out
        assert (session, turn.isdecimal()) == (hit["session"], True)
        assert "> Also this, please." in shown


def test_the_id_of_a_hit_is_unique_among_all_sessions(tmp_path):
    session, other = f"{SESSION[:9]}aaaa{SESSION[13:]}", f"{SESSION[:9]}bbbb{SESSION[13:]}"
    write(tmp_path, session, user("zebra"))
    write(tmp_path, other, user("giraffe", uuid="x1"))

    hit = within(tmp_path, "session", "search", "zebra").out.split("#")[0]

    assert hit == session[:10]
    assert within(tmp_path, "session", "show", hit).code == 0


def test_other_sources_leave_the_index_alone(tmp_path):
    write(tmp_path / "one", SESSION, user("zebra"))
    write(tmp_path / "two", SESSION, user("zebra too"))
    home = str(tmp_path / "home")

    def search(config):
        ran = within(config, "session", "search", "zebra", "--json", FLIGHTLOG_HOME=home)
        return json.loads(ran.out)["hits"][0]["snippet"]

    first = search(tmp_path / "one")
    ((name, before),) = index_state(tmp_path / "home").items()
    samples(tmp_path, "greet", FLIGHTLOG_HOME=home)
    assert index_state(tmp_path / "home") == {name: before}
    assert search(tmp_path / "two") == "zebra too"
    assert (search(tmp_path / "one"), index_state(tmp_path / "home")[name]) == (first, before)
