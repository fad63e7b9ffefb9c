"""Documents that come from the source: the committed ones are what the source says; man pages are sound."""

import re
import shutil
import subprocess
from pathlib import Path

from tools.docs import man, reference
from tools.docs.walk import commands, options

ROOT = Path(__file__).parents[2]


def test_the_reference_is_what_the_source_says():
    for name, body in reference.pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text("utf-8") == body, f"make docs: {name}"


def test_the_reference_names_every_command_option_setting_and_event():
    pages = reference.pages()
    every = list(commands())

    assert len(every) > 100
    for path, command in every[1:]:
        assert f"# {' '.join(path)}\n" in pages["commands.md"]
        for names, _ in options(path, command):
            assert "--help" in names or names.replace("|", r"\|") in pages["commands.md"]
    assert pages["events.md"].count("\n| `") > 50


def test_every_command_has_a_man_page_that_groff_takes(tmp_path):
    groff = shutil.which("groff")
    assert groff, "no groff: apt-get install groff-base"
    man.write(tmp_path)
    made = sorted(path.name for path in (tmp_path / "man1").iterdir())
    bodies = b"".join(
        (tmp_path / "man1" / name).read_bytes() for name in made if not man.pages()[name].startswith(".so ")
    )

    said = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-P-cbou"], input=bodies, capture_output=True, check=True)

    assert {"flightlog.1", "flightlog-session-show.1", "harness.1"} <= set(made)
    assert said.stderr.decode() == ""
    text = re.sub(r"\s+", " ", said.stdout.decode())
    assert "flightlog session show [OPTIONS] ADDRESS" in text
    assert "held by another process" in text


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "llms.txt", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
