"""Sessions of an agent with frictions, outcomes and failures put in on purpose, as the client writes them.

Each scene is a turn; the truth names the session, the kind and the turn it was put into.
"""

import random

from support.transcripts import assistant, stamp, user, write

PLAIN = (
    "Add a field to the form",
    "Rename the helper",
    "Explain this module",
    "Tidy the imports",
    "Write a summary",
)
FILES = ("src/app.py", "src/form.py", "web/page.ts", "lib/cart.go", "README.md")


class Scene:
    """A session that grows record by record."""

    def __init__(self, session: str, dice: random.Random, day: int) -> None:
        self.session = session
        self.dice = dice
        self.records: list[dict] = []
        self.turn = 0
        self._count = 0
        self._day = day

    def _add(self, record: dict) -> None:
        self._count += 1
        at = stamp(self._count * 7).replace("2026-11-02", f"2026-11-{self._day:02}")
        uuid = f"{self.session}-{self._count}"
        parent = f"{self.session}-{self._count - 1}" if self._count > 1 else None
        self.records.append(
            {
                **record,
                "uuid": uuid,
                "parentUuid": parent,
                "timestamp": at,
                "sessionId": self.session,
            }
        )

    def ask(self, text: str) -> None:
        self.turn += 1
        self._add(user(text))

    def call(
        self, tool: str, given: dict, answer: str, *, fails: bool = False, denied: bool = False
    ) -> None:
        name = f"t{self._count}-{self.session}"
        self._add(
            assistant(
                f"m{self._count}-{self.session}",
                2,
                {"type": "tool_use", "id": name, "name": tool, "input": given},
            )
        )
        result = {
            "type": "tool_result",
            "tool_use_id": name,
            "content": answer,
            "is_error": fails or denied,
        }
        more = (
            {"toolUseResult": "User rejected tool use", "toolDenialKind": "user-rejected"}
            if denied
            else {}
        )
        self._add({**user([result]), **more})

    def say(self, text: str) -> None:
        self._add(assistant(f"m{self._count}-{self.session}", 2, {"type": "text", "text": text}))

    def add_interruption(self) -> None:
        self._add(user([{"type": "text", "text": "[Request interrupted by user]"}]))

    def add_compaction(self) -> None:
        self._add(
            {
                "type": "system",
                "subtype": "compact_boundary",
                "compactMetadata": {"trigger": "auto", "preTokens": 9},
            }
        )


def plain(scene: Scene) -> None:
    """A turn in which nothing goes wrong."""
    scene.ask(scene.dice.choice(PLAIN))
    path = scene.dice.choice(FILES)
    scene.call("Read", {"file_path": f"/srv/shop/{path}"}, "1\tcontents")
    number = scene.dice.random()
    scene.call(
        "Edit",
        {"file_path": f"/srv/shop/{path}", "old_string": f"a{number}", "new_string": f"b{number}"},
        "done",
    )
    scene.say("Done.")


def plant_sessions(folder, seed: int, count: int = 14):
    """Write sessions below `folder`; return what was planted: (session, kind, turn)."""
    dice = random.Random(seed)
    truth: set[tuple[str, str, int]] = set()
    scenes = [
        Scene(f"00000000-0000-4000-8000-{seed % 10**6:06}{number:06}", dice, 1 + number % 28)
        for number in range(count)
    ]
    for scene in scenes:
        for _ in range(dice.randint(1, 3)):
            plain(scene)
        for kind in dice.sample(sorted(KINDS), dice.randint(0, 3)):
            KINDS[kind](scene)
            truth.add((scene.session, kind, scene.turn))
            plain(scene)
        write(folder, scene.session, *scene.records)
    return truth


def _interruption(scene: Scene) -> None:
    scene.ask("Rewrite the whole parser")
    scene.say("Starting with the parser.")
    scene.add_interruption()


def _plant_rejection(scene: Scene) -> None:
    scene.ask("Change the settings")
    scene.call(
        "Edit",
        {"file_path": "/srv/shop/settings.py", "old_string": "x", "new_string": "y"},
        "no",
        denied=True,
    )


def _loop(scene: Scene) -> None:
    scene.ask("Wait for the server")
    for _ in range(scene.dice.randint(5, 8)):
        scene.call("Bash", {"command": "curl -s localhost:8000/health"}, "starting")
    scene.say("It is up.")


def _retry(scene: Scene) -> None:
    scene.ask("Install the package")
    given = {"command": f"pip install thing{scene.dice.randint(1, 99)}"}
    scene.call("Bash", given, "error: network unreachable", fails=True)
    scene.call("Bash", given, "installed")


def _plant_revert(scene: Scene) -> None:
    scene.ask("Try the new colours")
    path = "/srv/shop/style.css"
    number = scene.dice.random()
    scene.call(
        "Edit",
        {"file_path": path, "old_string": f"red{number}", "new_string": f"blue{number}"},
        "done",
    )
    if scene.dice.random() < 0.5:
        scene.call(
            "Edit",
            {"file_path": path, "old_string": f"blue{number}", "new_string": f"red{number}"},
            "done",
        )
    else:
        scene.call("Bash", {"command": f"git checkout -- {path}"}, "")


def _dead_end(scene: Scene) -> None:
    scene.ask("Make the build pass")
    for number in range(4):
        scene.call(
            "Bash",
            {"command": f"make build-{number}"},
            f"make: *** [build-{number}] Error 2",
            fails=True,
        )


def _compaction(scene: Scene) -> None:
    scene.ask("Read everything")
    scene.say("Reading.")
    scene.add_compaction()


KINDS = {
    "interruption": _interruption,
    "rejected edit": _plant_rejection,
    "tool loop": _loop,
    "retry": _retry,
    "reverted file": _plant_revert,
    "dead end": _dead_end,
    "compaction": _compaction,
}
