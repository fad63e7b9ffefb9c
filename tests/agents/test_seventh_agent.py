"""A seventh agent is one package, its recordings and one line of the registry.

The package is `support.agents.tinker`, as docs/how-to/add-an-agent.md describes it.
"""

from datetime import UTC
from pathlib import Path

import pytest

from flightlog.agents import agent_label, agent_names, find_agent
from flightlog.agents.adoption import adopt_session_files
from flightlog.archive.archive import Archive
from flightlog.model.entries import Entry
from flightlog.model.errors import NotFound
from flightlog.model.usage import Breakdown
from support.cli_runs import within
from support.small_agent import SESSION, TINKER, registering_agent, write_session


@pytest.fixture
def tinker():
    with registering_agent() as agent:
        yield agent


def test_agent_is_known_only_while_it_is_registered():
    with registering_agent():
        assert (agent_names()[-1], agent_label("tinker")) == ("tinker", TINKER.label)
        assert find_agent("tinker").name == "tinker"

    with pytest.raises(NotFound):
        find_agent("tinker")


def test_session_of_a_registered_agent_is_read_counted_and_archived(tinker, tmp_path):
    path = write_session(tmp_path / "tinker")
    dirs, data = {"tinker": (str(path.parent),)}, str(tmp_path / "data")
    archive = Archive(dirs)
    (session,) = archive.iter_sessions()
    adopt_session_files(data, SESSION, archive.recordings[SESSION].files)

    path.unlink()

    (copy,) = Archive(dirs, data).iter_sessions()
    assert copy.turns == session.turns
    assert [call.is_error for step in session.steps for call in step.tool_calls] == [False, True]
    for home in ("", data):
        report = Archive(dirs, home).usage_report(Breakdown.AGENT, UTC)
        totals = [(row.key, row.usage.input_tokens) for row in report.rows]
        assert totals == ([("tinker", 380)] if home else [])


def test_reading_a_growing_session_equals_one_read(tinker, tmp_path):
    path = write_session(tmp_path)
    data = path.read_bytes()
    whole = list(tinker.source.entries(*tinker.find([str(tmp_path)]).files))
    items, end = [], 0
    for at in [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]:
        path.write_bytes(data[:at])
        (file,) = tinker.find([str(tmp_path)]).files
        items += [item for item in tinker.source.entries(file, end) if isinstance(item, Entry)]
        end = at

    assert items == whole


def test_init_says_that_the_agent_has_no_hook(tinker, tmp_path):
    (tmp_path / "tinker").mkdir()

    ran = within(tmp_path, "init", "--agent", "tinker", TINKER_HOME=str(tmp_path / "tinker"))

    assert ran.code == 0
    way = "`flightlog settle` finds its sessions by their files"
    assert ran.out == f"no hook is registered with Tinker: {way}\n"


def test_the_guide_names_what_the_package_needs():
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "add-an-agent.md").read_text()

    for name in ("RegisteredAgent", "LineFormat", "LineDecoder", "LineCounter", "manifest.json"):
        assert name in guide
