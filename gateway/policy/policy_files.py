# SPDX-License-Identifier: Apache-2.0
"""
Policies as files: one YAML document a policy, in one file or in a folder and below it.

Guarantee: what is read is bounded in size, number and depth before anything is made of it, and each member means what
it says: a member that is unknown or stands there twice, a second document, anchors, aliases, tags and two policies of
one id are refused, with file, line and column. `true`, `false`, `null` and decimal integers have types, as in JSON;
every other text is a text (`no` and `2026-01-01` too).

The only module that imports PyYAML.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import orjson
import yaml

from gateway.errors import BadRequestError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.examples import Example, parse_examples
from gateway.policy.nearest import nearest
from gateway.policy.scopes import EVERYTHING, Scope, parse_scope
from gateway.policy.text import place_of

if TYPE_CHECKING:
    from ledger.format.canonical import Json

Place: TypeAlias = tuple[int, int]
"""Line and column, both from 1."""

FILE_SIZE_BYTES_MAX: Final = 128 * 2**10
"""Four times what the largest policy takes in the log."""
FILES_MAX: Final = 1_000
"""As many as a tenant may have in force."""
FOLDER_ENTRIES_MAX: Final = 20_000
"""Of a folder and all below it, whatever they are: a folder of policies is no home folder."""
DEPTH_MAX: Final = 40
"""Lists and objects within each other."""
SUFFIXES: Final = frozenset({".yaml", ".yml"})
MEMBERS: Final = ("id", "expression", "message", "reason", "scope", "examples")
REQUIRED: Final = ("id", "expression", "message")
TEXT_WIDTH: Final = 100
"""Columns of a file that is written here, where its texts have blanks to break at."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser of libyaml, where PyYAML was built with it: ten times as fast, and the same events."""
_WORDS: Final[Mapping[str, Json]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_QUOTES: Final = frozenset({"'", '"'})
_EXAMPLES: Final = "examples"
_LAST: Final = re.compile(r"(\.[^.\[]*|\[[0-9]+\])$")


class PolicyFileError(BadRequestError):
    """A file of a policy cannot be read, or is none; `place` says where, if one place is to blame."""

    def __init__(self, name: str, reason: str, *, place: Place | None = None) -> None:
        at = f"{name}:{place[0]}:{place[1]}" if place else name
        super().__init__(f"{at}: {reason}")
        self.name = name
        self.reason = reason
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """
    A policy as its file says it. `name` is that of the file, for people; `expression` has no blanks at its end.

    `places` has the place of each member by its name as errors have it (`examples[0].expect`).
    """

    name: str
    id: str
    expression: str
    message: str
    reason: str = ""
    scope: Scope = EVERYTHING
    examples: tuple[Example, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    begins: Begin | None = field(default=None, compare=False, repr=False)

    def place_of(self, member: str) -> Place:
        """Return the place of a member, or of the nearest one around it."""
        return nearest_place(self.places, member)

    def place_in_expression(self, line: int, column: int) -> Place:
        """Return the place in the file of a line and column of the expression."""
        return (line, column) if self.begins is None else self.begins.place(line, column)

    def refused(self, error: BadRequestError) -> PolicyFileError:
        """Return `error`, about a member of this policy, with its place."""
        return PolicyFileError(self.name, str(error), place=self.place_of(error.field or ""))

    def is_about(self, error: BadRequestError) -> bool:
        """Return whether `error` is about a member that the file has."""
        return (error.field or "") in self.places

    def not_compiled(self, error: PolicyNotCompiledError) -> PolicyFileError:
        """Return the error of an expression that does not compile, with its place in the file."""
        return PolicyFileError(self.name, error.reason, place=self.place_in_expression(error.line, error.column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Where the text of an expression begins; its lines follow each other in the file if it is a literal block."""

    line: int
    column: int
    is_block: bool

    def place(self, line: int, column: int) -> Place:
        if self.is_block or line == 1:
            return self.line + line - 1, self.column + column - 1
        return self.line, self.column


def read_policies(path: Path) -> tuple[PolicyFile, ...]:
    """
    Return the policies in a file, or in all files `*.yaml` and `*.yml` of a folder and below it, in the order of names.

    Files and folders whose names begin with a dot are left out.

    Raises:
        PolicyFileError: if one cannot be read or is no policy, if two have one id, or if there is none.
    """
    return distinct(map(read_policy, files_in(path)))


def distinct(policies: Iterable[PolicyFile]) -> tuple[PolicyFile, ...]:
    """
    Return policies in their order.

    Raises:
        PolicyFileError: if two have one id; says where.
    """
    found: dict[str, PolicyFile] = {}
    for policy in policies:
        other = found.setdefault(policy.id, policy)
        if other is not policy:
            reason = f"expected an id that no other file has, found {policy.id!r}, which is the id of {other.name}, too"
            raise PolicyFileError(policy.name, reason, place=policy.place_of("id"))
    return tuple(found.values())


def read_policy(path: Path) -> PolicyFile:
    """
    Return the policy in one file.

    Raises:
        PolicyFileError: if it cannot be read, or is no policy.
    """
    return parse_policy(content_of(path), name=str(path))


def parse_policy(content: bytes, *, name: str) -> PolicyFile:
    """
    Return the policy that the content of a file says; `name` is that of the file.

    Raises:
        PolicyFileError: if it is none; says where.
    """
    document = open_document(content, name=name)
    members = document.read()
    for member in members:
        if member not in MEMBERS:
            reason = f"expected some of {', '.join(MEMBERS)}, found {member!r:.80}; the nearest is "
            raise PolicyFileError(name, reason + nearest(member[:80], MEMBERS), place=document.places[member])
    policy = PolicyFile(
        name=name,
        id=_text(members, "id", document),
        expression=_text(members, "expression", document),
        message=_text(members, "message", document),
        reason=_text(members, "reason", document),
        places=document.places,
        begins=document.begins.get("expression"),
    )
    try:
        scope, examples = parse_scope(members.get("scope")), parse_examples(members.get("examples"))
    except BadRequestError as error:
        raise policy.refused(error) from error
    return replace(policy, scope=scope, examples=examples)


def parse_examples_text(text: str) -> tuple[Example, ...]:
    """
    Return the examples that a text says, in the form that the member `examples` of a policy's file has.

    Raises:
        PolicyFileError: if it is none; its place is one of `text`.
    """
    # Indented, whatever the text says is within that member.
    within = "".join(f"\n {line}" for line in text.split("\n"))
    document = open_document(f"{_EXAMPLES}:{within}".encode(), name=_EXAMPLES, what="list of examples", required=())
    try:
        return parse_examples(document.read().get(_EXAMPLES))
    except PolicyFileError as error:
        reason, place = error.reason, error.place or (1, 1)
    except BadRequestError as error:
        reason, place = str(error), nearest_place(document.places, error.field or "")
    line = min(max(place[0] - 1, 1), text.count("\n") + 1)
    raise PolicyFileError(_EXAMPLES, reason, place=(line, max(place[1] - 1, 1)))


def format_members(value: Json) -> str:
    """
    Return members of a policy, or one of them, as its file says them: what is read from that is `value`.
    """
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=TEXT_WIDTH
    )
    return text


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Writes texts so that this module reads them as texts, those of several lines as literal blocks."""

    def ignore_aliases(self, _data: object) -> bool:
        """Write what stands there twice twice: aliases are refused."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if not text.replace("\n", "").isprintable():
        style = '"'  # a line separator would be read as the end of a line
    elif "\n" in text:
        style = "|"
    elif text in _WORDS or _NUMBER.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def nearest_place(places: Mapping[str, Place], member: str) -> Place:
    """Return the place of a member, or of the nearest one around it."""
    while member and member not in places:
        member = _LAST.sub("", member) if _LAST.search(member) else ""
    return places.get(member, (1, 1))


def open_document(
    content: bytes,
    *,
    name: str,
    what: str = "policy",
    required: Sequence[str] = REQUIRED,
    expressions: Collection[str] = ("expression",),
) -> Document:
    """
    Return the document in the content of a file, which is to be a `what`; `name` is that of the file.

    It remembers where the text of each member begins whose name is one of `expressions`.

    Raises:
        PolicyFileError: if it is too large, or no text.
    """
    if len(content) > FILE_SIZE_BYTES_MAX:
        raise PolicyFileError(name, f"expected at most {FILE_SIZE_BYTES_MAX:,} bytes, found more")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        place = place_of(content[: error.start].decode(), error.start)
        raise PolicyFileError(name, "expected UTF-8, found another byte", place=place) from error
    return Document(text, name, what=what, required=required, expressions=expressions)


def _text(members: Mapping[str, Json], member: str, document: Document) -> str:
    value = members.get(member)
    if value is None and member not in REQUIRED:
        return ""
    if isinstance(value, str) and value.strip():
        return value.rstrip() if member == "expression" else value.strip()
    found = "nothing" if value is None else orjson.dumps(value).decode()
    raise PolicyFileError(
        document.name,
        f"{member}: expected a text, found {found:.80}",
        place=document.places.get(member, (1, 1)),
    )


def files_in(path: Path) -> Iterator[Path]:
    """Yield `path`, or the files of policies in and below it."""
    if not path.is_dir():
        yield path
        return
    files: list[Path] = []
    entries = 0
    for folder, folders, names in os.walk(path, onerror=_raise_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        entries += len(folders) + len(names)
        files += [
            Path(folder, name) for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
        if entries > FOLDER_ENTRIES_MAX or len(files) > FILES_MAX:
            reason = f"expected at most {FILES_MAX:,} policies among {FOLDER_ENTRIES_MAX:,} files, found more"
            raise PolicyFileError(str(path), reason)
    if not files:
        raise PolicyFileError(str(path), "expected files *.yaml with a policy each, found none")
    yield from sorted(files)


def _raise_unreadable(error: OSError) -> NoReturn:
    raise PolicyFileError(str(error.filename), f"cannot be read: {error.strerror}") from error


def content_of(path: Path) -> bytes:
    """Return the content of a file, or of a larger one as much as it takes to refuse it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block
            raise PolicyFileError(str(path), "expected a file, found something else")
        with path.open("rb") as file:
            return file.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise PolicyFileError(str(path), f"cannot be read: {error.strerror}") from error


class Document:
    """The one document of a file, read event by event, so that nothing is made of what is refused."""

    def __init__(
        self, text: str, name: str, *, what: str, required: Sequence[str], expressions: Collection[str]
    ) -> None:
        self.name = name
        self.places: dict[str, Place] = {}
        self.begins: dict[str, Begin] = {}
        self._what, self._required, self._expressions = what, required, frozenset(expressions)
        self._text = text
        self._events = self._parsed()

    def read(self) -> Mapping[str, Json]:
        """
        Return the members of the document.

        Raises:
            PolicyFileError: if it is no object, or there is not exactly one.
        """
        next(self._events)  # the stream
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise PolicyFileError(self.name, f"expected a {self._what}, found an empty file", place=(1, 1))
        root = next(self._events)
        value = self._value(root, "", 0)
        if not isinstance(value, Mapping):
            self._refuse(root, f"expected a {self._what} with {', '.join(self._required)}, found {value!r:.80}")
        next(self._events)  # the end of the document
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._refuse(event, f"expected one {self._what} a file, found a second document")
        return value

    def _parsed(self) -> Iterator[Any]:
        """Yield the parser's events; its errors become ours."""
        try:
            yield from yaml.parse(self._text, Loader=_LOADER)
        except yaml.reader.ReaderError as error:
            place = place_of(self._text, error.position) if isinstance(error.position, int) else None
            raise PolicyFileError(self.name, f"no YAML: {error.reason}", place=place) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = " ".join(filter(None, (error.context, error.problem)))
            raise PolicyFileError(self.name, f"no YAML: {reason}", place=_place(mark) if mark else None) from error

    def _value(self, event: Any, where: str, depth: int) -> Json:
        if depth > DEPTH_MAX:
            self._refuse(event, f"expected at most {DEPTH_MAX} levels, found more")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self._refuse(event, "expected no anchors and aliases, found one: write the value where it is used")
        if event.tag is not None:
            self._refuse(event, f"expected no tags, found {event.tag!r:.80}")
        self.places.setdefault(where, _place(event.start_mark))
        if isinstance(event, yaml.MappingStartEvent):
            return self._members(where, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(where, depth)
        if where.rpartition(".")[2] in self._expressions:
            self.begins[where] = self._begin(event)
        return self._scalar(event)

    def _items(self, where: str, depth: int) -> list[Json]:
        items: list[Json] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._value(event, f"{where}[{len(items)}]", depth + 1))
        return items

    def _members(self, where: str, depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            name = self._value(event, f"{where} ", depth + 1)  # a name of its own: no member has a blank there
            if not isinstance(name, str):
                self._refuse(event, f"expected a text as a name, found {name!r:.80}: write it in quotes")
            if name in members:
                self._refuse(event, f"expected each name once, found {name!r:.80} again")
            del self.places[f"{where} "]
            inner = f"{where}.{name}" if where else name
            self.places[inner] = _place(event.start_mark)
            members[name] = self._value(next(self._events), inner, depth + 1)
        return members

    def _scalar(self, event: Any) -> Json:
        text: str = event.value
        if event.style or not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            self._refuse(event, f"expected an integer of at most 18 digits, found {text:.80}: write it as a text")
        return text

    def _begin(self, event: Any) -> Begin:
        """Return where the text of a scalar begins: in a literal block, behind the indentation of the next line."""
        line, column = _place(event.start_mark)
        if event.style == "|":
            lines = self._text.split("\n")[line:]
            first = next((one for one in lines if one.strip()), "")
            return Begin(line=line + 1, column=1 + len(first) - len(first.lstrip(" ")), is_block=True)
        return Begin(line=line, column=column + (event.style in _QUOTES), is_block=False)

    def _refuse(self, event: Any, reason: str) -> NoReturn:
        raise PolicyFileError(self.name, reason, place=_place(event.start_mark))


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1
