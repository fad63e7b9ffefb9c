"""What the model's server sees when a request arrives: files and repository, as the agent has them."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

from flightlog.agents.scripted import messages_api
from flightlog.agents.scripted.server import ServedApi
from support.waiting import below

_LOOKS = {
    "log": "git log --all --format='%H %P %at %ct %D %s'",
    "refs": "git for-each-ref; git symbolic-ref HEAD; git reflog --all",
    "stash": "git stash list --format='%gd %H %s'",
    "status": "git status --porcelain=v2 --branch",
    "index": "git ls-files --stage",
    "worktrees": "git worktree list --porcelain; git -C .trees/side status --porcelain=v2 --branch",
    "config": "git config --local --list",
    "times": "find . -path './.git/objects' -prune -o -printf '%T@ %p\\n'",
    "files": "find . -path ./.git -prune -o -type d -printf '%m %p\\n' -o -printf '%m %n %s %p %l\\n'",
    "content": "find . -path ./.git/objects -prune -o -name index -o -type f -exec sha1sum {} +",
}
_BEGIN = "@@@ "


def observe_requests(work, states, *without_time):
    """An API that notes in `states` what `work` is when a request arrives, by the id of its body."""

    def decode_request(path, headers, body):
        state = look(work)
        state["times"] = [
            line for line in state["times"] if line.partition(" ")[2] not in without_time
        ]
        states[id(body)] = state
        return messages_api.decode_request(path, headers, body)

    dialect = vars(messages_api) | {"decode_request": decode_request}
    return ServedApi(r"/messages$", "messages", SimpleNamespace(**dialect))


def look(work):
    """The state of a directory, in the mount namespace of the agent that this process started."""
    # Git must not write an index here.
    parts = [f"echo '{_BEGIN}{name}'; {command} | sort" for name, command in _LOOKS.items()]
    script = "\n".join(['cd "$1"; export GIT_OPTIONAL_LOCKS=0 HOME=/nonexistent', *parts])
    command = [*_enter_namespace(), "sh", "-c", script, "sh", work]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr
    texts = done.stdout.split(_BEGIN)[1:]
    return {name: text.splitlines() for name, _, text in (text.partition("\n") for text in texts)}


def _enter_namespace():
    own = Path("/proc/self/ns/mnt").readlink()
    for process in sorted(below(os.getpid())):
        try:
            if Path(f"/proc/{process}/ns/mnt").readlink() != own:
                return ["nsenter", f"--target={process}", "--mount"]
        except OSError:
            continue
    raise AssertionError("no agent runs in a mount namespace")
