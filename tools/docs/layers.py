"""Writes the layer diagram of `docs/explanation/architecture.md` from the import contract and the import graph."""

import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
START, END = "<!-- layers -->\n", "<!-- /layers -->\n"


def layers() -> list[list[str]]:
    """Return the packages of each layer, top layer first, as the layers contract in `pyproject.toml` lists them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    lines = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip(" ()") for name in line.replace(":", "|").split("|")] for line in lines]


def package_imports() -> dict[str, set[str]]:
    """Return, for each top-level module of flightlog, the top-level modules that it imports directly."""
    graph = grimp.build_graph("flightlog")
    imports: dict[str, set[str]] = {}
    for module in graph.modules:
        package = _top_level(module)
        targets = {_top_level(target) for target in graph.find_modules_directly_imported_by(module)}
        imports.setdefault(package, set()).update(targets - {package, ""})
    return imports


def render_diagram(levels: list[list[str]], imports: dict[str, set[str]]) -> str:
    """Return the layers as text, one per line, and a table of the direct imports of each package."""
    order = [package for level in levels for package in level]
    diagram = "\n".join(" | ".join(level) for level in levels)
    rows = [
        f"| `{package}` | {', '.join(f'`{name}`' for name in order if name in imports.get(package, ())) or 'nothing'} |"
        for package in order
    ]
    table = "\n".join(["| package | imports directly |", "|---|---|", *rows])
    return f"```text\n{diagram}\n```\n\n{table}\n"


def architecture_page() -> str:
    """Return the architecture page with its diagram replaced by the current one."""
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{render_diagram(layers(), package_imports())}\n{END}{after}"


def _top_level(module: str) -> str:
    """Return `usage` for `flightlog.usage.report`, and nothing for `flightlog` itself."""
    return module.split(".")[1] if "." in module else ""
