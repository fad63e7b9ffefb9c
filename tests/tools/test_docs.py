"""Generated documents are current, man pages are sound, links and commands in documents exist."""

import re
import shutil
import subprocess
from pathlib import Path

import click
from tools.docs import layers, man, reference
from tools.docs.walk import ALIASES, commands, options

ROOT = Path(__file__).parents[2]


def test_the_reference_is_what_the_source_says():
    for name, body in reference.pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text("utf-8") == body, f"make docs: {name}"


def test_the_layer_diagram_is_current():
    assert layers.PAGE.read_text("utf-8") == layers.architecture_page(), (
        "make docs: architecture.md"
    )


def test_the_layer_diagram_names_every_package_and_its_imports():
    levels, imports = (
        [["cli", "web"], ["store"], ["model"]],
        {"cli": {"model", "store"}, "store": {"model"}},
    )

    diagram = layers.render_diagram(levels, imports)

    assert diagram.startswith("```text\ncli | web\nstore\nmodel\n```\n")
    assert "| `cli` | `store`, `model` |\n" in diagram
    assert "| `web` | nothing |\n" in diagram


def test_the_reference_names_every_command_option_setting_and_event():
    pages = reference.pages()
    every = list(commands())

    assert len(every) > 100
    for path, command in every[1:]:
        assert f"# {' '.join(path)}\n" in pages["commands.md"]
        for names, _ in options(path, command):
            if "--help" not in names:
                assert names.replace("|", r"\|") in pages["commands.md"]
    assert pages["events.md"].count("\n| `") > 50


def test_every_command_has_a_man_page_that_groff_takes(tmp_path):
    groff = shutil.which("groff")
    assert groff, "no groff: apt-get install groff-base"
    man.write(tmp_path)
    made = sorted(path.name for path in (tmp_path / "man1").iterdir())
    bodies = b"".join(
        (tmp_path / "man1" / name).read_bytes()
        for name in made
        if not man.pages()[name].startswith(".so ")
    )

    rendered = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-P-cbou"], input=bodies, capture_output=True, check=True
    )

    assert {"flightlog.1", "flightlog-session-show.1", "harness.1"} <= set(made)
    assert rendered.stderr.decode() == ""
    text = re.sub(r"\s+", " ", rendered.stdout.decode())
    assert "flightlog session show [OPTIONS] ADDRESS" in text
    assert "held by another process" in text


def test_every_package_has_a_glossary_line():
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    packages = [path.parent.name for path in (ROOT / "src/flightlog").glob("*/__init__.py")]

    assert len(packages) > 10
    assert [name for name in packages if f"\n| `{name}` |" not in glossary] == []


def test_links_between_documents_lead_somewhere():
    pages = [*ROOT.glob("*.md"), ROOT / "llms.txt", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


PROGRAMS = "|".join(["flightlog", *ALIASES.values()])
CALLED = re.compile(rf"(?:^    |`|^\$ |&& |\| )((?:{PROGRAMS}) [^`\n]+)", re.MULTILINE)


def complaint(words, every, aliases):
    """What is wrong with a command as a document shows it."""
    program, *rest = words
    path = ("flightlog",) if program == "flightlog" else ("flightlog", aliases[program])
    while rest and (*path, rest[0]) in every:
        path = (*path, rest.pop(0))
    command = every[path]
    if (
        isinstance(command, click.Group)
        and rest
        and not rest[0].startswith("-")
        and program != "chat-retro"
    ):
        return (
            ""
            if rest[0] in {"…", "NOUN", "|"} or command.invoke_without_command
            else f"no command {rest[0]!r}"
        )
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    known |= {"--help", "-h", "--samples", "--debug", "--version"}
    unknown = [
        word.split("=")[0]
        for word in rest
        if word.startswith("--") and word.split("=")[0] not in known
    ]
    return f"no option {unknown[0]} of {' '.join(path)}" if unknown else ""


def test_every_command_the_documents_show_exists():
    every = dict(commands())
    aliases = {name: noun for noun, name in ALIASES.items()}
    wrong, seen = [], 0
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if page.parent.name == "decisions" or page.name == "commands.md":
            continue
        for shown in CALLED.findall(page.read_text("utf-8")):
            words = re.split(r"\s+(?:#|\||&&|>|<|;|·)", shown)[0].replace("--samples ", "").split()
            seen += 1
            problem = complaint([word.strip("'\"[],.;:()") for word in words], every, aliases)
            if problem:
                wrong.append(f"{page.relative_to(ROOT)}: {shown[:70]}: {problem}")

    assert wrong == []
    assert seen > 100
