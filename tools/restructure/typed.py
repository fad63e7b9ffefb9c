"""Ask mypy which class owns each attribute, and keep the answer as plain data."""
# ruff: noqa: PLR0911

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mypy import build, nodes, types
from mypy.config_parser import parse_config_file
from mypy.errors import CompileError
from mypy.modulefinder import BuildSource
from mypy.options import Options
from mypy.state import state
from mypy.subtypes import is_subtype
from mypy.typevars import fill_typevars_with_any

from . import hints
from .hints import Hints, collect, inject, needs_hints
from .source import SourceFile

_NOT_FOLLOWED = {"node", "info", "type", "unanalyzed_type", "original_def", "defn", "imports", "names", "alias_deps"}
UNKNOWN = "?"
_ROUNDS = 2  # each tells the next one about one more call of an unannotated helper


@dataclass
class ClassFacts:
    """A class: where it is, what it defines itself, and its bases in order."""

    name: str
    module: str
    line: int
    is_ours: bool
    is_protocol: bool
    members: dict[str, str]  # name -> method, property, field, class
    mro: list[str]


@dataclass
class TypeIndex:
    """What mypy knows, keyed by (path, end line, end byte column, name) for attributes."""

    classes: dict[str, ClassFacts] = field(default_factory=dict)
    owners: dict[tuple[str, int, int, str], set[str]] = field(default_factory=dict)
    protocols: list[tuple[str, str]] = field(default_factory=list)  # (protocol, implementation)
    imports: dict[str, set[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def build_index(root: Path, sources: list[SourceFile], cache: Path) -> TypeIndex:
    """Return the index of the tree as it is; an unchanged tree is not checked again."""
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in (Path(__file__), Path(hints.__file__))))
    for source in sources:
        digest.update(f"{source.path}\0{source.text}\0".encode())
    stored = cache / f"types-{digest.hexdigest()[:16]}.pickle"
    if stored.exists():
        return pickle.loads(stored.read_bytes())
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache) as scratch:  # later rounds read what did not change from there
        index = _ask_mypy(root, sources, Path(scratch))
    stored.write_bytes(pickle.dumps(index))
    return index


def _ask_mypy(root: Path, sources: list[SourceFile], cache: Path) -> TypeIndex:
    options = Options()
    parse_config_file(options, lambda: None, str(root / "pyproject.toml"))
    options.native_parser = False  # its columns are wrong after characters beyond ASCII
    options.incremental, options.cache_dir = True, str(cache)
    options.export_types = options.preserve_asts = options.check_untyped_defs = True
    options.namespace_packages = options.explicit_package_bases = True
    options.mypy_path = [str(root / part) for part in ("src", "tests", ".")]
    options.warn_unreachable = False
    ours = {each.module: each for each in sources}
    plain = [BuildSource(str(root / each.path), each.module, None) for each in sources]
    result = build.build(plain, options)
    index = TypeIndex(errors=[line for line in result.errors if ": error:" in line])
    infos: dict[str, nodes.TypeInfo] = {}
    with state.strict_optional_set(True):
        for module, node in result.files.items():
            for info in _classes_in(node, module, is_ours=module in ours):
                key = f"{module}:{info.defn.line}" if module in ours else info.fullname
                infos[key] = info
                _keys[info.fullname] = key
        for key, info in infos.items():
            _add_class(index, key, info, is_ours=info.module_name in ours)
        for module, source in ours.items():
            if module in result.files:
                _add_owners(index, result, module, source)
                index.imports[module] = set(result.graph[module].dependencies) if module in result.graph else set()
        _add_protocols(index, infos)
        _ask_again(root, options, sources, index, result)
    return index


def _ask_again(
    root: Path, options: Options, sources: list[SourceFile], index: TypeIndex, result: build.BuildResult
) -> None:
    """Learn about receivers in tests by annotating them with what the round before found out."""
    ours = {each.module: each for each in sources}
    inferred: dict[str, Hints] = {}
    for _ in range(_ROUNDS):
        inferred = _merge(inferred, collect(result.files, result.types, ours, _walk))
        texts = [
            BuildSource(
                str(root / each.path),
                each.module,
                inject(each, inferred.get(each.module, {})) if needs_hints(each) else None,
            )
            for each in sources
        ]
        try:
            result = build.build(texts, options)
        except CompileError as error:
            print("inference in tests stopped:", *error.messages[:3], sep="\n  ")
            return
        for module, source in ours.items():
            if needs_hints(source) and module in result.files:
                _add_owners(index, result, module, source)
        unknown = sum(1 for owners in index.owners.values() if owners == {UNKNOWN})
        print(f"{unknown} of {len(index.owners)} receivers without a type")


def _merge(old: dict[str, Hints], new: dict[str, Hints]) -> dict[str, Hints]:
    """Return the newer hints, and the older where there is no newer one."""
    merged: dict[str, Hints] = {}
    for module in {*old, *new}:
        lines = {*old.get(module, {}), *new.get(module, {})}
        merged[module] = {line: old.get(module, {}).get(line, {}) | new.get(module, {}).get(line, {}) for line in lines}
    return merged


_slots: dict[type, list[str]] = {}


def _walk(root: nodes.Node) -> Iterator[nodes.Node]:
    """Yield every node; mypy's own visitors are compiled and cannot be subclassed."""
    todo: list[object] = [root]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if isinstance(each, (list, tuple)):
            todo.extend(each)
            continue
        if not isinstance(each, nodes.Node) or isinstance(each, nodes.TypeInfo) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        kind = type(each)
        if kind not in _slots:
            _slots[kind] = [
                name
                for base in kind.__mro__
                for name, value in vars(base).items()
                if type(value).__name__ == "getset_descriptor" and name not in _NOT_FOLLOWED
            ]
        for name in _slots[kind]:
            value = getattr(each, name, None)
            if isinstance(value, (nodes.Node, list, tuple)):
                todo.append(value)


def _classes_in(node: nodes.MypyFile, module: str, *, is_ours: bool) -> list[nodes.TypeInfo]:
    if is_ours:
        found = [part.info for part in _walk(node) if isinstance(part, nodes.ClassDef)]
    else:
        found = [symbol.node for symbol in node.names.values() if isinstance(symbol.node, nodes.TypeInfo)]
    return [info for info in found if isinstance(info, nodes.TypeInfo) and info.module_name == module]


def _add_class(index: TypeIndex, key: str, info: nodes.TypeInfo, *, is_ours: bool) -> None:
    members = {name: _member_kind(symbol.node) for name, symbol in info.names.items()}
    mro = [_key(base) for base in info.mro]
    facts = ClassFacts(info.fullname, info.module_name, info.defn.line, is_ours, info.is_protocol, members, mro)
    index.classes[key] = facts


_keys: dict[str, str] = {}


def _key(info: nodes.TypeInfo) -> str:
    return _keys.get(info.fullname, info.fullname)


def _member_kind(node: nodes.Node | None) -> str:
    if isinstance(node, nodes.Decorator):
        return "property" if node.var.is_property else "method"
    if isinstance(node, nodes.OverloadedFuncDef):
        return "property" if node.is_property else "method"
    if isinstance(node, nodes.FuncDef):
        return "method"
    return "class" if isinstance(node, nodes.TypeInfo) else "field"


def _add_owners(index: TypeIndex, result: build.BuildResult, module: str, source: SourceFile) -> None:
    for part in _walk(result.files[module]):
        if isinstance(part, nodes.SuperExpr) and part.info and part.end_line:
            infos = [base for base in part.info.mro[1:] if part.name in base.names][:1]
            _put(index, source, part, part.name, {_key(info) for info in infos} or {UNKNOWN})
        elif isinstance(part, nodes.MemberExpr) and part.end_line:
            receiver = result.types.get(part.expr)
            _put(index, source, part, part.name, _owners(receiver, part.name))


def _put(index: TypeIndex, source: SourceFile, part: nodes.Expression, name: str, owners: set[str]) -> None:
    key = (str(source.path), part.end_line, part.end_column, name)
    known = index.owners.setdefault(key, set())
    if known and UNKNOWN not in known and not owners & known:
        # Two types for one place: an f-string of one text twice, or a later, inferred round. The first holds.
        return
    known |= owners
    if len(known) > 1:
        known.discard(UNKNOWN)


def _owners(kind: types.Type | None, name: str) -> set[str]:
    """Return the classes that define `name` for a receiver of this type."""
    if kind is None:
        return {UNKNOWN}
    kind = types.get_proper_type(kind)
    if isinstance(kind, types.UnionType):
        found = set().union(*(_owners(item, name) for item in kind.items))
        return found - {UNKNOWN} if len(found) > 1 else found
    if isinstance(kind, types.NoneType):
        return set()
    info = _class_of(kind)
    if info is None:
        return {UNKNOWN}
    owner = info.get_containing_type_info(name)
    if owner is None:
        return {UNKNOWN} if info.fallback_to_any else {_key(info)}
    return {_key(owner)}


def _class_of(kind: types.ProperType) -> nodes.TypeInfo | None:
    if isinstance(kind, types.Instance):
        return kind.type
    if isinstance(kind, types.TypeVarType):
        return _class_of(types.get_proper_type(kind.upper_bound))
    if isinstance(kind, types.TupleType):
        return kind.partial_fallback.type
    if isinstance(kind, (types.LiteralType, types.TypedDictType)):
        return kind.fallback.type
    if isinstance(kind, types.TypeType):
        return _class_of(kind.item)
    if isinstance(kind, types.FunctionLike):
        return kind.type_object() if kind.is_type_obj() else kind.fallback.type
    return None


def _add_protocols(index: TypeIndex, infos: dict[str, nodes.TypeInfo]) -> None:
    ours = [key for key, facts in index.classes.items() if facts.is_ours]
    for protocol in ours:
        if not index.classes[protocol].is_protocol:
            continue
        wanted = infos[protocol].protocol_members
        for other in ours:
            if other == protocol or not all(infos[other].get(name) for name in wanted):
                continue
            is_test = not index.classes[other].name.startswith("flightlog.")
            if is_test or is_subtype(fill_typevars_with_any(infos[other]), fill_typevars_with_any(infos[protocol])):
                index.protocols.append((protocol, other))
