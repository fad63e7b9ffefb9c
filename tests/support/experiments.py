"""Experiments in tests: a repository with a later answer, hidden checks, arms that do well or badly."""

import json
import os
import subprocess
from pathlib import Path

from support.cli_runs import FLIGHTLOG, Ran
from support.labs import MODEL, environment

HIDDEN = "import sys\nsys.exit('good' not in open('result.txt').read())\n"
FUNCTION = "def score(work):\n    return len(open(work + '/result.txt').read()) / 10\n"


def git(folder, *words):
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
    names |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **names}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, check=True)
    return done.stdout.decode().strip()


def repository(root: Path) -> str:
    """Make `root/shop` with the commit of the task and a later one that holds the answer."""
    shop = root / "shop"
    shop.mkdir(parents=True)
    git(shop, "init", "-q", "-b", "main")
    (shop / "price.py").write_text("price = 1\n")
    git(shop, "add", "."), git(shop, "commit", "-qm", "first")
    first = git(shop, "rev-parse", "HEAD")
    (shop / "result.txt").write_text("good\n")
    git(shop, "add", "."), git(shop, "commit", "-qm", "the answer")
    return first


def scenario(word, seconds=0.0):
    """A model that has the agent look around and write `word`."""
    look = "git log --all --oneline | wc -l > commits.txt; ls > seen.txt"
    steps = [{"tool": "Bash", "input": {"command": look}}]
    write = f"sleep {seconds}; echo {word} > result.txt"
    return {
        "rules": [
            {
                "replies": [
                    {"blocks": steps},
                    {"blocks": [{"tool": "Bash", "input": {"command": write}}]},
                    {"text": "Done."},
                ]
            }
        ]
    }


def experiment_file(root: Path, tasks: int = 1, agent: str = "scripted", **more) -> Path:
    """Write an experiment of two arms, `weak` and `strong`, over copies of one task."""
    commit = repository(root)
    (root / "hidden.py").write_text(HIDDEN)
    (root / "score.py").write_text(FUNCTION)
    seconds, strong = more.pop("seconds", 0.0), more.pop("strong", {})
    verifiers = [
        {"name": "tests", "command": "python3 check.py", "files": {"check.py": "hidden.py"}},
        {"name": "length", "function": "score.py:score"},
    ]
    task = {"repo": "shop", "commit": commit, "setup": "echo ready > setup.txt"}
    listed = [
        task | {"id": f"task-{n}", "prompt": f"Write {n}.", "verifiers": verifiers}
        for n in range(1, tasks + 1)
    ]
    arms = [
        {"name": name, "agent": agent, "model": MODEL, "scenario": scenario(word, seconds)}
        for name, word in (("weak", "bad"), ("strong", "good"))
    ]
    arms[1] |= strong
    data = {"primary": "tests", "tasks": listed, "arms": arms, "max_parallel": 2} | more
    path = root / "prices.yaml"
    path.write_text(json.dumps(data))  # JSON is YAML
    return path


def start(root: Path, *words: str, **more: str) -> subprocess.Popen:
    env = environment(root) | {"FLIGHTLOG_HOME": str(root / "data")} | more
    return subprocess.Popen(
        [FLIGHTLOG, *words],
        env=env,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def flightlog(root: Path, *words: str, **more: str) -> Ran:
    running = start(root, *words, **more)
    out, err = running.communicate(timeout=600)
    return Ran(running.returncode, out, err)


def harness(root: Path, *words: str, **more: str) -> Ran:
    return flightlog(root, "lab", *words, "--runs-dir", str(root / "runs"), **more)


def report(root: Path, name: str = "prices", *words: str) -> dict:
    ran = harness(root, "experiment", "report", name, "--json", *words)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)
