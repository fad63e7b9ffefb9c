"""Write the software bill of materials of a release: CycloneDX 1.6 JSON, the same bytes for the same inputs.

    python -m tools.sbom build/flightlog.cdx.json

Holds what an installation brings along: the pinned Python packages (`run.txt` required, `extras.txt` and `scale.txt`
optional) and the web assets that are built into the wheel. What only builds, tests or judges is left out. Versions and
hashes come from the lock files, licenses and dependencies from the metadata of the installed packages. Packages are
named by purl.
"""

import base64
import json
import re
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LICENSE_CHARS_MAX = (
    60  # older packages put the whole text of their license into the field for its name
)
_NAMESPACE = uuid.UUID(
    "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
)  # RFC 9562: names that are URLs, such as a purl
Json = dict[str, Any]
Links = dict[str, list[str]]


def main() -> None:
    """Write the document to the path given."""
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(build_sbom(ROOT), indent=2, ensure_ascii=False) + "\n", "utf-8")


def build_sbom(root: Path) -> Json:
    """Return the document for the lock files below `root`."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    own = _pypi(project["name"], project["version"])
    packages = [
        *_read_requirements(root / "requirements/run.txt", "required"),
        *_read_requirements(root / "requirements/extras.txt", "optional"),
        *_read_requirements(root / "requirements/scale.txt", "optional"),
    ]
    components = {
        package["bom-ref"]: package for package in reversed(packages)
    }  # the first mention wins
    links = _link_python(components, own, project)
    assets, asset_links = _read_package_lock(root / "tools/web/package-lock.json", own)
    components |= {asset["bom-ref"]: asset for asset in assets}
    links |= asset_links | {own: links[own] + asset_links[own]}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": own,
            }
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": links[ref]} for ref in sorted(links)],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(document, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}"} | document


def _read_requirements(path: Path, scope: str) -> list[Json]:
    """Return one component for each pinned package, with the hashes of all its files."""
    components: list[Json] = []
    for line in path.read_text("utf-8").splitlines():
        if pinned := _PINNED.match(line):
            name, version = pinned.groups()
            ref = _pypi(name, version)
            components.append(_component(ref, name, version, scope) | _licenses(name))
        elif match := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            components[-1]["hashes"].append({"alg": "SHA-256", "content": match[1]})
    return components


def _licenses(name: str) -> Json:
    """Return what an installed package says its license is; a package for another platform is not installed."""
    try:
        package = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return {}
    if expression := package.get("License-Expression"):
        return {"licenses": [{"expression": expression}]}
    classified = [
        value.rpartition(" :: ")[2]
        for value in package.get_all("Classifier", [])
        if value.startswith("License :: ")
    ]
    written = package.get("License") or ""
    names = classified or (
        [written] if 0 < len(written) <= _LICENSE_CHARS_MAX and "\n" not in written else []
    )
    return (
        {"licenses": [{"license": {"name": license_name}} for license_name in names]}
        if names
        else {}
    )


def _link_python(components: Json, own: str, project: Json) -> Links:
    """Return which pinned package needs which, as far as installed metadata tells."""
    refs: Links = {}  # two versions of a package are pinned where an older Python needs an older one
    for ref, component in components.items():
        refs.setdefault(_normal(component["name"]), []).append(ref)
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]
    links = {own: _refs_of(wanted, refs)}
    for name, own_refs in refs.items():
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            needs = []
        links |= dict.fromkeys(
            own_refs, _refs_of([need for need in needs if "extra ==" not in need], refs)
        )
    return links


def _refs_of(requirements: list[str], refs: Links) -> list[str]:
    names = {_normal(_NAME.match(requirement)[0]) for requirement in requirements}
    return sorted(ref for name in names & refs.keys() for ref in refs[name])


def _read_package_lock(path: Path, own: str) -> tuple[list[Json], Links]:
    """Return the web assets and which needs which; what only tests need is left out."""
    packages = json.loads(path.read_text("utf-8"))["packages"]
    packages_by_name = {
        where.rpartition("node_modules/")[2]: package for where, package in packages.items()
    }
    shipped = {
        name: package
        for name, package in packages_by_name.items()
        if name and not package.get("dev")
    }
    refs = {
        name: f"pkg:npm/{quote(name, safe='/')}@{package['version']}"
        for name, package in shipped.items()
    }
    assets: list[Json] = []
    links = {own: sorted(refs[name] for name in packages[""]["dependencies"])}
    for name, package in shipped.items():
        algorithm, _, digest = package["integrity"].partition("-")
        hashed = {
            "alg": algorithm.upper().replace("SHA", "SHA-"),
            "content": base64.b64decode(digest).hex(),
        }
        licenses = (
            {"licenses": [{"expression": package["license"]}]} if "license" in package else {}
        )
        assets.append(
            _component(refs[name], name, package["version"], "required")
            | {"hashes": [hashed]}
            | licenses
        )
        links[refs[name]] = sorted(
            refs[need] for need in package.get("dependencies", {}) if need in refs
        )
    return assets, links


def _component(ref: str, name: str, version: str, scope: str) -> Json:
    named = {"type": "library", "bom-ref": ref, "name": name, "version": version}
    return named | {"scope": scope, "hashes": [], "purl": ref}


def _pypi(name: str, version: str) -> str:
    return f"pkg:pypi/{_normal(name)}@{version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
