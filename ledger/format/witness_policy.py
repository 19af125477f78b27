# SPDX-License-Identifier: Apache-2.0
"""
Trust policies: which logs, which witnesses, and how many of them must have cosigned (C2SP tlog-policy).

Guarantee: `WitnessPolicy.check` returns a checkpoint only if a log of the policy has signed it and its quorum has
cosigned it. A policy that does not parse to its last octet is an error. So are a policy without a quorum, an unknown
name and an empty group.

Names are opaque octets. As text, they carry bytes that are not UTF-8 as lone surrogates (PEP 383), so that different
names stay different. `UNSAFE_NO_QUORUM` is the quorum of a policy that needs no witness. It must be written down: it is
never a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import COSIGNATURE_TYPES, open_cosignatures
from ledger.format.encoding import parse_decimal
from ledger.format.note import VerifierKey, open_note, parse_note

UNSAFE_NO_QUORUM: Final = "none"
"""The predefined name for no quorum: every checkpoint that the log has signed is accepted."""

POLICY_SIZE_BYTES_MAX: Final = 2_000_000
LINES_MAX: Final = 64
"""
Of logs, of witnesses and of groups each: 32 must be possible (tlog-policy, "Implementation limits"), and a note has
room for a hundred signatures.
"""

_CODEC: Final = "utf-8"
_OPAQUE: Final = "surrogateescape"
_FORBIDDEN: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_WORD: Final = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_SPACE: Final = re.compile("[ \t]+")  # no other white space separates, whatever Unicode says
_LINE_FORMS: Final = (
    "'log <vkey> [<url>]', 'witness <name> <vkey> [<url>]', 'group <name> all|any|<k> <name> …' or 'quorum <name>'"
)


class UnwitnessedError(LedgerError):
    """Too few of a policy's witnesses have cosigned a checkpoint; says who has, and what the quorum is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLog:
    """A log that is accepted: its key, whose name is the origin, and its URL, if the policy has one."""

    key: VerifierKey
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWitness:
    """A witness under its name in the policy; `url` is its submission prefix, if the policy has one."""

    name: str
    key: VerifierKey
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGroup:
    """A group that has witnessed a checkpoint if `threshold` of its members have: witnesses, or earlier groups."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """
    A checkpoint that a policy accepts; `cosignatures` maps names of witnesses to times, POSIX seconds.

    The times are the witnesses' own; the policy does not check them.
    """

    checkpoint: Checkpoint
    log: VerifierKey
    cosignatures: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessPolicy:
    """
    A trust policy. A group may name witnesses and the groups before it; `quorum` names a witness or a group.

    Raises (when it is made):
        FormatError: if names, keys or thresholds are not as the specification requires.
    """

    logs: tuple[PolicyLog, ...]
    witnesses: tuple[PolicyWitness, ...]
    groups: tuple[PolicyGroup, ...]
    quorum: str

    def __post_init__(self) -> None:
        if (most := max(len(self.logs), len(self.witnesses), len(self.groups))) > LINES_MAX:
            raise FormatError("policy", expected=f"at most {LINES_MAX} logs, witnesses and groups each", found=most)
        _check_distinct("log", [log.key.public for log in self.logs])
        _check_distinct("witness", [witness.key.public for witness in self.witnesses])
        for url in (*(log.url for log in self.logs), *(witness.url for witness in self.witnesses)):
            if url is not None:
                _check_word(url)
        names: set[str] = set()
        for witness in self.witnesses:
            _define(names, witness.name)
            if witness.key.algorithm not in COSIGNATURE_TYPES:
                expected = "a key of a cosigner (type 0x04 or 0x06)"
                raise FormatError(f"policy: witness {witness.name}", expected=expected, found=witness.key.format())
        placed: set[str] = set()
        for group in self.groups:
            _check_group(group, names, placed)
            _define(names, group.name)
        if self.quorum != UNSAFE_NO_QUORUM and self.quorum not in names:
            raise FormatError("policy: quorum", expected="a witness or a group of the policy", found=self.quorum)

    @classmethod
    def parse(cls, data: bytes) -> WitnessPolicy:
        """
        Return the policy that a file holds; what `format` writes of it is read as the same policy.

        Raises:
            FormatError: at the first line that the specification does not allow, or if there is no quorum.
        """
        return _parse(data)

    def format(self) -> bytes:
        """Return the policy as a file: logs, witnesses, groups and quorum, a line each."""
        lines = [
            *(["log", log.key.format(), *([log.url] if log.url else [])] for log in self.logs),
            *(["witness", w.name, w.key.format(), *([w.url] if w.url else [])] for w in self.witnesses),
            *(["group", group.name, str(group.threshold), *group.members] for group in self.groups),
            ["quorum", self.quorum],
        ]
        return "".join(" ".join(line) + "\n" for line in lines).encode(_CODEC, _OPAQUE)

    def check(self, note: bytes, *, logs: Sequence[VerifierKey] = ()) -> Witnessed:
        """
        Check that a log of this policy, or one of `logs`, has signed the checkpoint `note`, and the quorum cosigned it.

        1. Every signature of a known key, log's or witness's, must verify.
        2. One of them is of a log whose name is the checkpoint's origin.
        3. The witnesses that have cosigned are enough for the quorum.

        Raises:
            FormatError: if `note` is no signed checkpoint.
            BrokenError: (`Fault.SIGNATURE`) at steps 1 and 2; without any log, too: no log is not any log.
            UnwitnessedError: at step 3.
        """
        keys = [*(log.key for log in self.logs), *logs]
        opened = open_note(note, [*keys, *(witness.key for witness in self.witnesses)])  # 1
        checkpoint = parse_checkpoint(opened.text)
        signed = [key for key in opened.verified if key in keys and key.name == checkpoint.origin]  # 2
        if not signed:
            expected = f"a signature of {checkpoint.origin} by a log of the policy"
            found = ", ".join(key.name for key in opened.verified)
            raise BrokenError(Fault.SIGNATURE, where="checkpoint", expected=expected, found=found)
        cosignatures = self.cosignatures(note)
        if not self.is_met_by(cosignatures.keys()):  # 3
            who = ", ".join(cosignatures) or "nobody"
            raise UnwitnessedError(
                f"checkpoint of {checkpoint.origin} at size {checkpoint.size}: expected cosignatures for the quorum "
                f"{self.quorum}, found those of {who}"
            )
        return Witnessed(checkpoint=checkpoint, log=signed[0], cosignatures=cosignatures)

    def cosignatures(self, note: bytes) -> dict[str, int]:
        """
        Return the names of the witnesses that have cosigned the checkpoint `note`, with the times, POSIX seconds.

        A cosignature with the time zero does not count: it says nothing of when, or whether this was the largest tree
        seen (tlog-cosignature, "timestamp"), and no witness answers one (tlog-witness, "add-checkpoint").

        Raises:
            FormatError: if `note` is no signed note.
            BrokenError: (`Fault.SIGNATURE`) if a cosignature of one of the witnesses does not verify.
        """
        text, lines = parse_note(note)
        times = open_cosignatures(text, lines, [witness.key for witness in self.witnesses])
        return {witness.name: times[witness.key] for witness in self.witnesses if times.get(witness.key, 0) > 0}

    def is_met_by(self, witnesses: AbstractSet[str]) -> bool:
        """Return whether cosignatures of these witnesses, by name, make the quorum."""
        met = set(witnesses) & {witness.name for witness in self.witnesses}
        for group in self.groups:  # each stands behind its members
            if sum(member in met for member in group.members) >= group.threshold:
                met.add(group.name)
        return self.quorum == UNSAFE_NO_QUORUM or self.quorum in met


def _check_distinct(what: str, keys: Sequence[bytes]) -> None:
    if len(set(keys)) != len(keys):
        expected = f"each {what} with a public key of its own, under whatever name"
        raise FormatError("policy", expected=expected, found=f"{len(keys)} lines with {len(set(keys))} keys")


def _check_group(group: PolicyGroup, names: AbstractSet[str], placed: set[str]) -> None:
    what = f"policy: group {group.name}"
    for member in group.members:
        if member not in names:
            raise FormatError(what, expected="members that were defined before", found=member)
        if member in placed:
            raise FormatError(what, expected="each name as a member of one group, once", found=member)
        placed.add(member)
    if not 1 <= group.threshold <= len(group.members):
        expected = f"a threshold from 1 to {len(group.members)}, and a member at least"
        raise FormatError(what, expected=expected, found=group.threshold)


def _define(names: set[str], name: str) -> None:
    _check_word(name)
    if name == UNSAFE_NO_QUORUM or name in names:
        raise FormatError("policy", expected="a name that is not taken", found=name)
    names.add(name)


def _check_word(word: str) -> None:
    """Check that `word` stands for itself in a line: no space and no control character, in octets that exist."""
    try:
        octets = word.encode(_CODEC, _OPAQUE)
    except UnicodeEncodeError:
        octets = b""
    if not _WORD.fullmatch(octets) or octets.decode(_CODEC, _OPAQUE) != word:
        raise FormatError("policy", expected="a name or URL without spaces and control characters", found=word)


class _Lines:
    """The lines of a policy as they are read: a name counts from the line on that defines it."""

    def __init__(self) -> None:
        self.logs: list[PolicyLog] = []
        self.witnesses: list[PolicyWitness] = []
        self.groups: list[PolicyGroup] = []
        self.quorums: list[str] = []
        self.names: set[str] = {UNSAFE_NO_QUORUM}

    def read(self, words: Sequence[str]) -> None:
        match words:
            case ["log", vkey, *url] if len(url) <= 1:
                self.logs.append(PolicyLog(key=VerifierKey.parse(vkey), url=_only(url)))
            case ["witness", name, vkey, *url] if len(url) <= 1:
                self.witnesses.append(PolicyWitness(name=name, key=VerifierKey.parse(vkey), url=_only(url)))
                self.names.add(name)
            case ["group", name, threshold, *members] if members:
                for member in members:
                    self._check_known(member)
                thresholds = {"any": 1, "all": len(members)}
                count = thresholds.get(threshold) or parse_decimal(threshold, what="policy: threshold")
                self.groups.append(PolicyGroup(name=name, threshold=count, members=tuple(members)))
                self.names.add(name)
            case ["quorum", name]:
                self._check_known(name)
                self.quorums.append(name)
            case _:
                raise FormatError("policy", expected=_LINE_FORMS, found=" ".join(words))

    def _check_known(self, name: str) -> None:
        if name not in self.names:
            raise FormatError("policy", expected="a name that a line before defines", found=name)


def _parse(data: bytes) -> WitnessPolicy:
    if len(data) > POLICY_SIZE_BYTES_MAX:
        raise FormatError("policy", expected=f"at most {POLICY_SIZE_BYTES_MAX} bytes", found=f"{len(data)} bytes")
    if (octet := _FORBIDDEN.search(data)) is not None:
        raise FormatError("policy", expected="no control characters but tab and newline", found=octet.group())
    *lines, rest = data.decode(_CODEC, _OPAQUE).split("\n")
    if rest:  # a policy that was cut must not be read as a shorter one
        raise FormatError("policy", expected="a newline at the end of every line", found=rest)
    read = _Lines()
    for number, line in enumerate(lines, 1):
        words = [word for word in _SPACE.split(line) if word]
        if words and not words[0].startswith("#"):
            try:
                read.read(words)
            except FormatError as error:
                raise FormatError(f"policy, line {number}", expected="a line as specified", found=str(error)) from error
    if len(read.quorums) != 1:
        raise FormatError("policy", expected="exactly one quorum line", found=len(read.quorums))
    return WitnessPolicy(
        logs=tuple(read.logs), witnesses=tuple(read.witnesses), groups=tuple(read.groups), quorum=read.quorums[0]
    )


def _only(words: Sequence[str]) -> str | None:
    return words[0] if words else None
