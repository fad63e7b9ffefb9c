"""One session for each kind of finding, and a twin that differs only in what makes it wrong."""

import random
from pathlib import Path

from flightlog.archive.archive import Archive
from flightlog.model.session import Session
from retro.planted_sessions import Scene
from support.transcripts import write

CART = "/home/ada/shop/src/cart.py"
SESSION = "33333333-3333-4333-8333-333333333333"


def build_session(folder: Path, play, *, is_clean: bool = False) -> Session:
    """Write the scene as a transcript of Claude Code and read it as a session."""
    scene = Scene(SESSION, random.Random(1), 3)
    play(scene, is_clean=is_clean)
    write(folder, SESSION, *scene.records)
    return Archive({"claude-code": (str(folder),)}).read_session(SESSION)


def edit(scene: Scene, old: str, new: str, path: str = CART) -> None:
    scene.call("Edit", {"file_path": path, "old_string": old, "new_string": new}, "edited")


def run(scene: Scene, command: str, answer: str = "", **outcome: bool) -> None:
    scene.call("Bash", {"command": command}, answer, **outcome)


def read(scene: Scene, path: str = CART, answer: str = "1\ttotal = 0") -> None:
    scene.call("Read", {"file_path": path}, answer)


def _fail_alike(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Build the shop")
    read(scene)
    for number, name in enumerate(("price", "amount", "tax", "coupon")):
        error = f"undefined name {name if is_clean else 'price'}"
        run(scene, f"make build V={number}", f"src/cart.py:{number}: error: {error}", fails=True)
        edit(scene, f"a{number}", f"b{number}")
    run(scene, "make build V=4", "built")
    scene.say("It builds.")


def _undo_edit(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Round the total")
    read(scene)
    edit(scene, "total = sum(prices)", "total = round(sum(prices))")
    run(scene, "python3 shop.py", "12")
    edit(scene, "round(sum(prices))" if is_clean else "total = round(sum(prices))",
         "round(sum(prices), 2)" if is_clean else "total = sum(prices)")  # fmt: skip
    run(scene, "python3 shop.py", "11.5")
    scene.say("The total is as it was.")


def _read_again(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Explain the cart")
    for number in range(4):
        read(scene)
        if is_clean:
            edit(scene, f"# note {number}", f"# remark {number}")
    run(scene, "python3 shop.py", "12")
    scene.say("It adds prices.")


def _loop(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Start the server")
    run(scene, "python3 serve.py &")
    for number in range(5):
        run(
            scene,
            "curl -s localhost:8000/health",
            f"loaded {number} of 4" if is_clean else "starting",
        )
    scene.say("It is up.")


def _retry_denied(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Publish it")
    run(scene, "git push origin main", "no", denied=True)
    if is_clean:
        scene.ask("You may push now")
        run(scene, "git push origin main", "pushed")
    else:
        run(scene, "git push origin main", "no", denied=True)
        run(scene, "git push --force origin main", "no", denied=True)
    scene.say("That is all.")


def _leave_untested(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Fix the total")
    run(scene, "pytest -q", "5 passed in 0.1s")
    read(scene)
    edit(scene, "total = 0", "total = sum(prices)")
    edit(scene, "return 0", "return total")
    if is_clean:
        run(scene, "pytest -q", "5 passed in 0.1s")
    run(scene, "git commit -am fix", "[main 1a2b3c4] fix\n 1 file changed")
    scene.say("The total is fixed.")


def _discard(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Try another layout")
    edit(scene, "rows", "columns")
    edit(scene, "width", "height")
    run(scene, "python3 shop.py", "broken")
    if is_clean:
        run(scene, "git commit -am layout", "[main 1a2b3c4] layout")
    run(scene, f"git checkout -- {'README.md' if is_clean else 'src/cart.py'}")
    scene.say("The old layout is back.")


def _forget(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Understand the shop")
    read(scene)
    read(scene, "/home/ada/shop/src/form.py", "1\tform")
    scene.say("Read.")
    scene.add_compaction()
    scene.ask("Describe the shop")
    if is_clean:
        read(scene, "/home/ada/shop/src/page.py", "1\tpage")
        read(scene, "/home/ada/shop/src/list.py", "1\tlist")
    else:
        read(scene)
        read(scene, "/home/ada/shop/src/form.py", "1\tform")
    scene.say("It sells things.")


def _interrupt(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Rewrite the parser")
    read(scene)
    read(scene, "/home/ada/shop/src/parser.py")
    scene.say("I begin with the parser.")
    scene.add_interruption()
    scene.ask("Continue, please" if is_clean else "Look at the form")
    scene.say("The form is short.")


def _go_wrong(scene: Scene, *, is_clean: bool) -> None:
    scene.ask("Make the button blue")
    read(scene)
    edit(scene, "button", "banner")
    run(scene, "python3 shop.py", "12")
    scene.say("The banner is blue.")
    scene.ask(
        "Thanks, now the link" if is_clean else "No, that's not what I asked for. The button."
    )
    edit(scene, "link", "blue link")
    run(scene, "python3 shop.py", "12")
    scene.say("It is blue.")


# For each kind: the session, and the turn and step where the finding begins.
PLANTED = {
    "repeated-failure": (_fail_alike, "1.2"),
    "edit-undo": (_undo_edit, "1.2"),
    "repeated-read": (_read_again, "1.1"),
    "tool-loop": (_loop, "1.2"),
    "denied-retry": (_retry_denied, "1.1"),
    "untested-change": (_leave_untested, "1.3"),
    "discarded-work": (_discard, "1.1"),
    "forgotten-after-compaction": (_forget, "2.1"),
    "interruption": (_interrupt, "1.3"),
    "wrong-turn": (_go_wrong, "1.1"),
}
