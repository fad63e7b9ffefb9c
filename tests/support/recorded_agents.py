"""Recordings of agents that are only read, and what their sources make of them."""

from datetime import UTC

from flightlog.agents import find_agent
from flightlog.archive.archive import Archive
from flightlog.model.entries import Entry
from flightlog.model.usage import Breakdown, Usage
from support.client_recordings import lay_out_home
from support.real_clients import RECIPES


def agent_dir(where, *cases):
    """The directory of an agent, such as ~/.gemini, with the sessions of these cases."""
    client = cases[0].partition("/")[0]
    return lay_out_home(where, *cases) / RECIPES[client].folder


def read_archive(name, home, data=""):
    return Archive({name: (str(home),)}, str(data) if data else "")


def total_usage(name, home, data=""):
    return read_archive(name, home, data).usage_report(Breakdown.SESSION, UTC).total.usage


def read_events(name, home, kind):
    """The events of one kind in all files below an agent's directory."""
    agent = find_agent(name)
    items = (item for file in agent.find([str(home)]).files for item in agent.source.entries(file))
    return [
        item.event for item in items if isinstance(item, Entry) and isinstance(item.event, kind)
    ]


def session_usage(session):
    """The tokens of all steps of a session, subagents included."""
    turns = [*session.turns, *(turn for sub in session.subagents for turn in sub.turns)]
    return sum((step.usage for turn in turns for step in turn.steps), Usage())
