"""Samples and other projects stay out of a project's own analysis."""

import json

from support.cli_runs import within
from support.transcripts import SESSION, assistant, user, write


def analyze(config, *options, cache):
    ran = within(
        config, *options, "retro", "analyze", "--no-draw", "--json", XDG_CACHE_HOME=str(cache)
    )
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_samples_are_not_mixed_into_the_projects_analysis(tmp_path, monkeypatch):
    config, project = tmp_path / "config", tmp_path / "project"
    write(config, SESSION, user("hello"), assistant("m1", 2))
    project.mkdir()
    monkeypatch.chdir(project)

    samples = analyze(config, "--samples", cache=tmp_path / "cache")

    assert list(project.iterdir()) == []
    assert not (config / "home").exists()
    own = analyze(config, cache=tmp_path / "cache")
    assert (samples["meta"]["conversation_count"], own["meta"]["conversation_count"]) == (3, 1)


def test_a_parents_store_outside_a_repository_is_left_alone(tmp_path, monkeypatch):
    config, parent = tmp_path / "config", tmp_path / "parent"
    write(config, SESSION, user("hello"), assistant("m1", 2))
    (parent / ".chat-retro-runtime").mkdir(parents=True)
    (parent / "child").mkdir()
    monkeypatch.chdir(parent / "child")

    analyze(config, cache=tmp_path / "cache")

    assert list((parent / ".chat-retro-runtime").iterdir()) == []
    assert (parent / "child" / ".chat-retro-runtime" / "state" / "analysis.json").exists()
