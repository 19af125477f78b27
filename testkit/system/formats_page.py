# SPDX-License-Identifier: Apache-2.0
"""
What `docs/formats.md` has to say, read from the code.

Each function of `CHECKS` takes the text of the page and returns what it says wrongly, as sentences that tell what to
write instead; nothing if the page is true.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, get_args

from gateway.identifiers import Named, parse_target
from lakeproof.provision import PACKAGES, Migration
from lakeproof.provision import migrations as read_migrations
from ledger.errors import FormatError
from ledger.format.entry import parse_entry
from ledger.format.event import CONTROL_FAMILIES, commitment, derived_group_id
from ledger.format.events import EVENTS
from ledger.format.merkle import leaf_hash, node_hash
from ledger.format.tiles import parse_bundle
from testkit.environment import PROJECT

PAGE: Final = PROJECT / "docs" / "formats.md"
FORMAT_MODULES: Final = (
    "ledger.format.canonical",
    "ledger.format.encoding",
    "ledger.format.event",
    "ledger.format.entry",
    "ledger.format.sequence",
    "ledger.format.merkle",
    "ledger.format.tiles",
    "ledger.format.note",
    "ledger.format.signature",
    "ledger.format.proof",
    "ledger.files.directory",
    "ledger.proving.evidence.bundle",
    "ledger.format.sealing",
    "ledger.erasing.subject_keys",
    "ledger.signing.key_ring",
    "ledger.signing.stored_keys",
    "ledger.signing.key_directory",
    "ledger.format.key_history",
    "ledger.witness.rules",
    "ledger.witness.store",
)
NOT_STORED: Final = frozenset({"BLANK", "KEY_WAIT_S", "THREADS_MAX", "OPENED_MAX", "SIZE_CONTENT_TYPE"})
"""Constants of those modules that say nothing about what is stored: they bound work, or stand for what is filled in."""
FORMS: Final = {
    "type": ("ledger.format.event", "TYPE_FORM"),
    "key": ("ledger.format.event", "KEY_FORM"),
    "actor": ("ledger.format.event", "ACTOR_FORM"),
    "part": ("ledger.format.event", "PART_NAME_FORM"),
    "origin": ("ledger.format.entry", "ORIGIN_FORM"),
}
LABEL: Final = re.compile(
    r"lakeproof/[a-z-]+[/@]v\d+|lakeproof signer [a-z]+ \d+|lakeproof-signer-keys|[a-z]+/v\d+|c2sp\.org/[a-z-]+@v\d+"
)
"""A text with a version, or a fixed name, by which what is signed, sealed or held is distinguished."""

Row = list[str]


def section(page: str, title: str) -> str:
    """Return the text under a heading of the second level, up to the next one."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(page: str, title: str) -> list[Row]:
    """Return the rows of all tables of a section, cell by cell, their heads left out."""
    found: list[Row] = []
    head: str | None = None
    for line in section(page, title).splitlines():
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = line
        elif set(line) - set("|- "):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def code(cell: str) -> str:
    """Return what a cell marks as code, or the cell."""
    return cell[1:-1] if cell.startswith("`") and cell.endswith("`") else cell


def kind_of(kind: Any) -> str:
    """Return how the page names the type of a member."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        (some,) = (argument for argument in arguments if argument is not type(None))
        return f"{kind_of(some)} or null"
    if origin is tuple:
        return f"list of {kind_of(arguments[0])}"
    if origin is Mapping or origin is dict:
        return f"object of {kind_of(arguments[1])}"
    return {str: "text", int: "integer", bool: "boolean"}.get(kind) or f"{kind.__name__}"


def members_of(cls: Any) -> str:
    """Return the members of a dataclass as the page lists them: in the order of canonical JSON."""
    hints = typing.get_type_hints(cls)
    return "; ".join(f"`{name}` {kind_of(hints[name])}" for name in sorted(field.name for field in fields(cls)))


def shapes() -> dict[str, str]:
    """Return the objects and closed sets that members of events have, by name, as the page spells them."""
    found: dict[str, str] = {}

    def visit(kind: Any) -> None:
        for argument in typing.get_args(kind):
            visit(argument)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            found[kind.__name__] = ", ".join(f"`{member.value}`" for member in kind)
        elif is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in found:
            if kind not in EVENTS.values():
                found[kind.__name__] = members_of(kind)
            for hint in typing.get_type_hints(kind).values():
                visit(hint)

    for event in EVENTS.values():
        visit(event)
    return found


def check_events(page: str) -> Iterator[str]:
    """Compare every type and version with its members."""
    said = {
        (code(row[0]), int(row[1])): row[2] for row in rows(page, "Event types") if len(row) > 2 and row[1].isdigit()
    }
    for (kind, version), cls in EVENTS.items():
        expected = members_of(cls)
        if (kind, version) not in said:
            yield f"Event types: add a row for {kind} {version}, with the members: {expected}"
        elif said[kind, version] != expected:
            yield f"Event types: the members of {kind} {version} are: {expected}; the page has: {said[kind, version]}"
    for kind, version in said.keys() - EVENTS.keys():
        yield f"Event types: the code knows no {kind} {version}; a version that was ever written must stay readable"


def check_shapes(page: str) -> Iterator[str]:
    """Compare the objects and closed sets inside events."""
    yield from _compare(page, "Objects and closed sets", shapes())


def check_constants(page: str) -> Iterator[str]:
    """Compare limits, sizes and names of files."""
    yield from _compare(page, "Constants", constants())


def check_tables(page: str) -> Iterator[str]:
    """Compare the tables of each component with those that its migrations make, and the columns of the log's."""
    yield from _compare(
        page, "Tables of the log", {name: ", ".join(f"`{c}`" for c in cs) for name, cs in columns().items()}
    )
    for package in PACKAGES[1:]:
        expected = ", ".join(f"`{name}`" for name in tables(package))
        said = {code(row[0]): row[1] for row in rows(page, "Other tables")}.get(package)
        if said != expected:
            yield f"Other tables: the row of {package} must say: {expected}; the page has: {said}"


def check_migrations(page: str) -> Iterator[str]:
    """Compare the migrations: their numbers, names, and what their texts hash to."""
    said = [(code(row[0]), row[1], code(row[2]), code(row[3])) for row in rows(page, "Migrations")]
    expected = [(m.package, f"{m.number:04}", m.name, m.sha256[:12]) for m in migrations()]
    for row in expected:
        known = [one for one in said if one[:2] == row[:2]]
        if not known:
            yield f"Migrations: add the row | `{row[0]}` | {row[1]} | `{row[2]}` | `{row[3]}` |"
        elif known[0] != row:
            yield (
                f"Migrations: {row[0]} {row[1]} is {row[2]} with SHA-256 {row[3]}…; the page has {known[0]}. If it was "
                "ever released, undo the change and write a new migration instead: databases refuse another text"
            )
    if extra := sorted(set(said) - set(expected)):
        yield f"Migrations: the code has no {extra}; a migration is never removed"
    if not extra and len(said) == len(expected) and said != expected:
        yield "Migrations: list them in the order in which they run"


def check_forms(page: str) -> Iterator[str]:
    """Compare the forms of an entry's texts, which are regular expressions."""
    said = dict(re.findall(r"^(\w+) +(\S+)$", _block(page, "Event"), re.MULTILINE))
    expected = {name: getattr(importlib.import_module(module), form).pattern for name, (module, form) in FORMS.items()}
    for name, form in expected.items():
        if said.get(name) != form:
            yield f"Event: the form of {name} is {form}; the page has {said.get(name)}"


def check_prefixes(page: str) -> Iterator[str]:
    """Compare the bytes that keep hashes of one kind from being hashes of another."""
    one, two = b"\x11" * 32, b"\x22" * 32
    group_id = derived_group_id("kind", {"a": 1}).bytes
    hashes: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
        "leaf": (leaf_hash(one), lambda prefix: sha256(prefix + one).digest()),
        "node": (node_hash(one, two), lambda prefix: sha256(prefix + one + two).digest()),
        "commitment": (commitment(salt=one, payload=two), lambda prefix: sha256(prefix + one + two).digest()),
        "group id": (
            _without_version(group_id),
            lambda prefix: _without_version(sha256(prefix + b'kind\0{"a":1}').digest()[:16]),
        ),
    }
    said = {row[0]: code(row[1]) for row in rows(page, "Hashes")}
    for name, (found, of) in hashes.items():
        right = next(f"0x{byte:02x}" for byte in range(256) if of(bytes([byte])) == found)
        if said.get(name) != right:
            yield f"Hashes: {name} begins with {right}; the page has {said.get(name)}"


def check_group_ids(page: str) -> Iterator[str]:
    """Compare the kinds of content that group ids are derived from, and where that is done."""
    said = [row for row in rows(page, "Hashes") if not row[1].startswith("`0x")]
    kinds = {kind for row in said for kind in re.findall("`([^`]+)`", row[0])}
    files = {file for row in said for file in re.findall("`([^`]+)`", row[2])}
    found = derivations()
    for kind in sorted({kind for kind, _ in found if kind} - kinds):
        yield f"Hashes: group ids are derived from content of the kind {kind!r}: add a row"
    for file in sorted({file for _, file in found} ^ files):
        yield f"Hashes: name {file} beside the kinds that it derives group ids of, if it does so, and nowhere else"


def check_labels(page: str) -> Iterator[str]:
    """Compare the texts that say what is signed, sealed or held."""
    said = {code(row[0]).strip('"'): code(row[1]) for row in rows(page, "Labels")}
    for label, file in labels().items():
        if said.get(label) != file:
            yield f"Labels: {label!r} stands in {file}; the page has {said.get(label)}"
    for label in sorted(said.keys() - labels().keys()):
        yield f"Labels: {label!r} stands nowhere in the code; what was signed under it must stay readable"


def check_parts(page: str) -> Iterator[str]:
    """Compare the names of payload parts with those that the code makes, and where."""
    said = {(code(row[0]), code(row[1])) for row in rows(page, "Payload parts")}
    for name, file in sorted(parts() - said):
        yield f"Payload parts: {file} makes a part {name!r}: add a row"
    for name, file in sorted(said - parts()):
        yield f"Payload parts: {file} makes no part {name!r}"


def check_keys(page: str) -> Iterator[str]:
    """Compare the kinds of event keys."""
    said = {code(row[0]) for row in rows(page, "Event keys")}
    for kind in sorted(key_kinds() - said):
        yield f"Event keys: the code makes keys `{kind}:…`: add a row"
    for kind in sorted(said - key_kinds()):
        yield f"Event keys: the code makes no keys `{kind}:…`"


def check_example(page: str) -> Iterator[str]:
    """Compare the example with the first entry of the exported log next to the page."""
    entry = parse_bundle((PAGE.parent / "example-log" / "tile" / "entries" / "000.p" / "3").read_bytes())[0]
    shown = _block(page, "Entry").strip().encode()
    if shown != entry:
        yield f"Entry: the example must be the first entry of docs/example-log: {entry.decode()}"
    try:
        parse_entry(shown)
    except FormatError as error:
        yield f"Entry: the example is no entry: {error}"
    for name in (*json.loads(entry), *json.loads(entry)["event"], *json.loads(entry)["group"]):
        if f"`{name}`" not in section(page, "Entry") + section(page, "Event"):
            yield f"Entry: say what the member {name} is"


CHECKS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_") and callable(check)
}


@cache
def migrations() -> tuple[Migration, ...]:
    """Return every migration, in the order in which they run."""
    return tuple(read_migrations())


@cache
def constants() -> Mapping[str, str]:
    """Return the public constants of the modules that define formats, as the page spells them."""
    found: dict[str, str] = {}
    for module in FORMAT_MODULES:
        loaded = importlib.import_module(module)
        for name in _assigned(loaded.__file__ or ""):
            value = getattr(loaded, name)
            if name not in NOT_STORED and not name.endswith("_S") and (spelled := _spelled(value)) is not None:
                found[f"{module}.{name}"] = spelled
    return found


@cache
def labels() -> Mapping[str, str]:
    """Return the labels in the code of the log, each with the file where it stands."""
    found: dict[str, str] = {}
    for path, tree in _sources("ledger"):
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in documented:
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                if match := LABEL.match(text):
                    found.setdefault(match[0], path)
    return found


@cache
def parts() -> frozenset[tuple[str, str]]:
    """Return the names of the payload parts that the code makes with a new salt, each with the file that does."""
    found: set[tuple[str, str]] = set()
    for package in PACKAGES:
        for path, tree in _sources(package, naming="Part"):
            for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                for call in ast.walk(function):
                    arguments = {k.arg: k.value for k in call.keywords} if _calls(call, "Part") else {}  # type: ignore[attr-defined]
                    salt = arguments.get("salt")
                    if salt is not None and "random" in ast.unparse(salt):  # else the part was there before
                        found |= {(name, path) for name in _names(arguments["name"], function, path)}
    return frozenset(found)


@cache
def derivations() -> frozenset[tuple[str, str]]:
    """Return the kinds of content that group ids are derived from, as far as calls spell them, and the files."""
    found: set[tuple[str, str]] = set()
    types = {cls.__name__: cls.TYPE for cls in EVENTS.values()}
    for package in (*PACKAGES, "lakeproof"):
        for path, tree in _sources(package, naming="derived_group_id"):
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and _calls(call, "derived_group_id"):
                    spelled = ast.unparse(call.args[0])
                    names = re.findall(r"\b([A-Z]\w+)\.TYPE", spelled)
                    if isinstance(call.args[0], ast.Constant):
                        found.add((str(call.args[0].value), path))
                    elif names:
                        source = "/<source>" if isinstance(call.args[0], ast.JoinedStr) else ""
                        found |= {(types[name] + source, path) for name in names}
                    else:
                        found.add(("", path))
    return frozenset(found)


@cache
def key_kinds() -> frozenset[str]:
    """Return the kinds of keys that events have."""
    aggregates = {cls.TYPE.partition(".")[0] for cls in EVENTS.values()} & CONTROL_FAMILIES
    targets = [parse_target("lake", "sales", "name", kind=kind) for kind in get_args(Named)]
    found = {*aggregates, *(target.kind for target in (*targets, parse_target("lake", "sales", None)))}
    for package in (*PACKAGES, "lakeproof"):
        for _, tree in _sources(package, naming="format_key"):
            found |= {
                str(call.args[0].value)
                for call in ast.walk(tree)
                if _calls(call, "format_key") and isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant)
            }
    return frozenset(found)


@cache
def tables(package: str) -> list[str]:
    """Return the tables and views that the migrations of a component make, in that order, and do not drop again."""
    text = "\n".join(migration.text for migration in migrations() if migration.package == package)
    made = re.findall(r"^CREATE (?:TABLE|VIEW) (\S+)", text, re.MULTILINE)
    dropped = re.findall(r"^DROP (?:TABLE|VIEW) ([^\s;]+)", text, re.MULTILINE)
    return [name for name in made if name not in dropped]


@cache
def columns() -> dict[str, list[str]]:
    """Return the columns of each table of the log, in order; of a view, none."""
    text = "\n".join(migration.text for migration in migrations() if migration.package == "ledger")
    found = {name: list[str]() for name in tables("ledger")}
    for name, body in re.findall(r"^CREATE TABLE (\S+) \((.*?)^\)", text, re.MULTILINE | re.DOTALL):
        found[name] += re.findall(r"^    ([a-z_]+) ", body, re.MULTILINE)
    for name, body in re.findall(r"^ALTER TABLE (\S+)\s(.*?);", text, re.MULTILINE | re.DOTALL):
        if name in found:
            found[name] += re.findall(r"ADD COLUMN ([a-z_]+) ", body)
    return found


def _compare(page: str, title: str, expected: Mapping[str, str]) -> Iterator[str]:
    said = {code(row[0]): row[1] for row in rows(page, title)}
    for name, value in expected.items():
        if said.get(name) != value:
            yield f"{title}: the row must be | `{name}` | {value} |; the page has {said.get(name)}"
    for name in sorted(said.keys() - expected.keys()):
        yield f"{title}: the code has no {name}"


def _block(page: str, title: str) -> str:
    found = re.search(r"```\w*\n(.*?)```", section(page, title), re.DOTALL)
    return "" if found is None else found[1]


def _without_version(group_id: bytes) -> bytes:
    """Return the id without the bits that RFC 9562 sets."""
    changed = bytearray(group_id)
    changed[6] &= 0x0F
    changed[8] &= 0x3F
    return bytes(changed)


def _spelled(value: object) -> str | None:
    match value:
        case bool():
            return None
        case int() if value > 2**40 and (value + 1).bit_count() == 1:
            return f"2^{value.bit_length()} - 1"
        case int():
            return f"{value:,}"
        case str():
            return f"`{value}`"
        case bytes():
            return f"`{value.hex()}`"
        case frozenset() if all(isinstance(one, str) for one in value):
            return ", ".join(f"`{one}`" for one in sorted(value))
    return None


def _assigned(file: str) -> list[str]:
    names: list[str] = []
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names += [one.id for one in targets if isinstance(one, ast.Name) and re.fullmatch("[A-Z][A-Z0-9_]*", one.id)]
    return names


def _sources(package: str, *, naming: str = "") -> list[tuple[str, ast.Module]]:
    """Return the modules of a package whose text has a name in it: the others take long to parse, and do not use it."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted((PROJECT / package).rglob("*.py"))}
    return [(str(file.relative_to(PROJECT)), ast.parse(text)) for file, text in texts.items() if naming in text]


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _names(name: ast.expr, function: ast.FunctionDef, path: str) -> set[str]:
    """Return the names that a part can have: a constant, one of the module's, or the members of a dictionary."""
    if isinstance(name, ast.Constant):
        return {str(name.value)}
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    if isinstance(name, ast.Name) and isinstance(found := getattr(module, name.id, None), str):
        return {found}
    keys = [key for node in ast.walk(function) if isinstance(node, ast.Dict) for key in node.keys]
    keys += [node.slice for node in ast.walk(function) if isinstance(node, ast.Subscript)]
    named = [getattr(module, key.id, None) for key in keys if isinstance(key, ast.Name)]
    spelled = [key.value for key in keys if isinstance(key, ast.Constant)]
    return {key for key in (*named, *spelled) if isinstance(key, str)}
