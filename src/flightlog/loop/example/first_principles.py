"""The work of the example plan: small, real, offline. Each function returns what it has to report."""

import ast
import json
from pathlib import Path

HERE = Path("first-principles")


def discover():
    """Report every Python file as a feature."""
    features = []
    for path in sorted(Path().glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        features.append({"feature_id": f"F{len(features) + 1:03}", "name": path.stem, "category": "core",
                         "directory": ".", "purpose": (ast.get_docstring(tree) or "").splitlines()[:1],
                         "key_files": [path.name], "names": names})  # fmt: skip
    _write("features.json", features)
    told = [{"feature": {**each, "purpose": " ".join(each["purpose"])}} for each in features]
    ids = [each["feature_id"] for each in features]
    return [*told, {"metric": "features", "value": len(ids)}, {"context": {"features_discovered": ids}},
            {"artifact": "first-principles/features.json"}]  # fmt: skip


def document():
    """Write a page for each feature."""
    features = _read("features.json")
    told = []
    for each in features:
        path = HERE / "docs" / f"{each['name']}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {each['name']}\n\n" + "".join(f"- `{name}`\n" for name in each["names"]), "utf-8")
        told += [{"artifact": str(path)}, {"doc": {"path": str(path), "feature_id": each["feature_id"]}},
                 {"feature": {"feature_id": each["feature_id"], "documented": True, "status": "documented"}}]  # fmt: skip
    ids = [each["feature_id"] for each in features]
    return [*told, {"metric": "documentation_coverage", "value": 1.0}, {"context": {"features_documented": ids}}]


def challenge():
    """Ask of each feature whether every name in it is used."""
    features = _read("features.json")
    found = [{"challenge": f"C-{each['feature_id']}", "assumption": f"{name} is used"}
             for each in features for name in each["names"]]  # fmt: skip
    _write("challenges.json", found)
    told = [{"feature": {"feature_id": each["feature_id"], "challenges_generated": True,
                         "assumptions_count": len(each["names"])}} for each in features]  # fmt: skip
    names = sorted({each["challenge"] for each in found})
    return [*told, {"context": {"challenges_generated": names, "assumptions_identified": len(found)}}]


def register():
    """Write the registry."""
    _write("registry.json", {each["feature_id"]: each["name"] for each in _read("features.json")})
    return [{"artifact": "first-principles/registry.json"}]


def plan_validations():
    """A validation for each challenge."""
    plans = [{"validation": f"V{number:03}", **each} for number, each in enumerate(_read("challenges.json"), 1)]
    _write("validations.json", plans)
    return [{"context": {"validations_planned": [each["validation"] for each in plans]}}]


def validate():
    """Look whether each name occurs anywhere in the directory."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(Path().glob("*")) if path.suffix in {".py", ".yaml"})
    plans = _read("validations.json")
    right = [each["validation"] for each in plans if text.count(each["assumption"].split()[0]) > 1]
    share = len(right) / len(plans) if plans else 1.0
    return [{"metric": "validations_passed", "value": share}, {"context": {"validations_executed": right}}]


def learn():
    """Keep what was learned."""
    count = len(_read("validations.json"))
    (HERE / "lessons.md").write_text(f"# Lessons\n\n{count} assumptions were named and looked at.\n", "utf-8")
    return [{"artifact": "first-principles/lessons.md"}, {"confidence": 0.9}]


def _write(name, value):
    HERE.mkdir(exist_ok=True)
    (HERE / name).write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _read(name):
    return json.loads((HERE / name).read_text("utf-8"))
