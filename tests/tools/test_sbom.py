"""The bill of materials: complete, sound by the schema's rules, the same each time, and without addresses."""

import json
import re
import subprocess
import sys
from importlib import metadata

import pytest
from tools.sbom import ROOT, build_sbom

PURL = re.compile(
    r"pkg:(?:pypi/[a-z0-9-]+|npm/(?:%40[a-z0-9-]+/)?[a-z0-9.-]+)@[0-9][0-9A-Za-z.+-]*"
)
HASH = {"SHA-256": re.compile("[0-9a-f]{64}"), "SHA-512": re.compile("[0-9a-f]{128}")}


@pytest.fixture(scope="module")
def document():
    return build_sbom(ROOT)


def test_command_writes_the_same_document_each_time(document, tmp_path):
    command = [sys.executable, "-m", "tools.sbom", tmp_path / "build" / "flightlog.cdx.json"]
    subprocess.run(command, cwd=ROOT, check=True)

    written = (tmp_path / "build" / "flightlog.cdx.json").read_text()

    assert json.loads(written) == document
    assert "://" not in written


def test_document_has_the_fields_that_cyclonedx_requires(document):
    assert (document["bomFormat"], document["specVersion"], document["version"]) == (
        "CycloneDX",
        "1.6",
        1,
    )
    assert re.fullmatch(
        "urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        document["serialNumber"],
    )
    for component in [document["metadata"]["component"], *document["components"]]:
        assert component["type"] in {"application", "library"}
        assert component["name"]
        assert PURL.fullmatch(component["purl"]), component["purl"]
        assert component["purl"] == component["bom-ref"]
        assert component.get("scope", "required") in {"required", "optional"}
        assert all(
            HASH[digest["alg"]].fullmatch(digest["content"])
            for digest in component.get("hashes", ())
        )
        licenses = component.get("licenses", [])
        assert all("license" in license_entry for license_entry in licenses) is (
            "expression" not in str(licenses)
        )
        if len(licenses) > 1:
            assert all("license" in license_entry for license_entry in licenses)


def test_every_pinned_package_and_asset_is_in_it_with_hashes(document):
    pinned = set()
    for name in ("run", "extras", "scale"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pinned |= set(re.findall(r"(?m)^([A-Za-z0-9._-]+==[^ ;]+)", text))
    lock = json.loads((ROOT / "tools/web/package-lock.json").read_text())["packages"]
    assets = {
        f"{key.rpartition('node_modules/')[2]}=={package['version']}"
        for key, package in lock.items()
        if key and not package.get("dev")
    }

    components = document["components"]

    assert {
        f"{component['name']}=={component['version']}" for component in components
    } == pinned | assets
    assert [component["name"] for component in components if not component["hashes"]] == []
    assert "axe-core" not in {component["name"] for component in components}


def test_dependencies_name_components_that_exist(document):
    refs = [component["bom-ref"] for component in document["components"]]
    own = document["metadata"]["component"]["bom-ref"]
    links = {dependency["ref"]: dependency["dependsOn"] for dependency in document["dependencies"]}

    assert len(refs) == len(set(refs))
    assert set(links) == {own, *refs}
    assert {need for needs in links.values() for need in needs} <= set(refs)
    assert {need.partition("@")[0] for need in links[own]} >= {
        "pkg:pypi/click",
        "pkg:pypi/aiohttp",
        "pkg:npm/d3",
    }
    assert any(
        need.startswith("pkg:pypi/yarl@")
        for ref, needs in links.items()
        if "/aiohttp@" in ref
        for need in needs
    )


def test_every_installed_package_has_a_license(document):
    installed = {
        re.sub("[-_.]+", "-", distribution.name).lower()
        for distribution in metadata.distributions()
    }
    unnamed = {
        component["name"] for component in document["components"] if "licenses" not in component
    }

    assert unnamed & installed == set()
