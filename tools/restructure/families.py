"""Methods that must share one name: overrides, protocol implementations, members of a union."""

from collections import defaultdict
from collections.abc import Iterable

from .typed import UNKNOWN, TypeIndex

Member = tuple[str, str]  # class key, name


class Families:
    """Sets of members that are renamed together, for the given names only."""

    def __init__(self, index: TypeIndex, names: set[str]) -> None:
        self._parent: dict[Member, Member] = {}
        self._reasons: dict[Member, str] = {}
        self.index = index
        self.children: dict[str, set[str]] = defaultdict(set)
        for key, facts in index.classes.items():
            for base in facts.mro:
                self.children[base].add(key)
        for key, facts in index.classes.items():
            if facts.is_ours:
                self._join_bases(key, names)
        for protocol, other in index.protocols:
            for name in names & index.classes[protocol].members.keys():
                self._join([(protocol, name), (self._definer(other, name), name)])
        for key, owners in index.owners.items():
            if key[3] in names and len(owners) > 1:
                self._join([(owner, key[3]) for owner in owners if self._has(owner, key[3])])

    def members(self, member: Member) -> list[Member]:
        root = self._root(member)
        return list(self._groups().get(root, [member]))

    def is_foreign(self, member: Member) -> bool:
        return any(not self.index.classes[key].is_ours for key, _ in self.members(member) if key in self.index.classes)

    def _groups(self) -> dict[Member, list[Member]]:
        if not hasattr(self, "_grouped"):
            self._grouped: dict[Member, list[Member]] = defaultdict(list)
            for member in list(self._parent):
                self._grouped[self._root(member)].append(member)
        return self._grouped

    def _has(self, key: str, name: str) -> bool:
        return key != UNKNOWN and key in self.index.classes and name in self.index.classes[key].members

    def _definer(self, key: str, name: str) -> str:
        return next((base for base in self.index.classes[key].mro if self._has(base, name)), key)

    def _join_bases(self, key: str, names: set[str]) -> None:
        mro = [base for base in self.index.classes[key].mro if base in self.index.classes]
        for name in names:
            self._join([(base, name) for base in mro if name in self.index.classes[base].members])

    def _join(self, members: Iterable[Member]) -> None:
        members = list(members)
        for member in members:
            self._parent.setdefault(member, member)
        for member in members[1:]:
            self._parent[self._root(member)] = self._root(members[0])

    def _root(self, member: Member) -> Member:
        while self._parent.get(member, member) != member:
            member = self._parent[member]
        return member
