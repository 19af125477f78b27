# SPDX-License-Identifier: Apache-2.0
"""
The graph of who imports whom, read from the source: circles, imports upwards, and folders without a place.

Every import statement counts, wherever it stands: in a function and under `TYPE_CHECKING`, too. Layers are those that
import-linter reads from `pyproject.toml`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

OUTSIDE: Final = ("testkit", "tests", "bench")
"""What is not installed. Tests and benches share testkit, and nothing else; so do tests among themselves."""
_FORBIDDEN: Final = {"bench": {"tests"}, "testkit": {"tests", "bench"}, "tests": {"bench", "tests"}}


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One module imports another of the project, at a line of its file."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported} (line {self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The layers of one container, the highest first; the members of a layer do not import each other."""

    container: str
    layers: tuple[frozenset[str], ...]

    def place(self, module: str) -> tuple[int, str] | None:
        """Return the layer and the member that `module` belongs to, or None if it belongs to none."""
        inside = module.removeprefix(self.container + ".") if self.container else module
        if self.container and inside == module:
            return None
        member = inside.partition(".")[0]
        return next(((number, member) for number, layer in enumerate(self.layers) if member in layer), None)


def find_faults(root: Path) -> list[str]:
    """Return everything in the source tree at `root` that the import graph must not have, each as a sentence."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    packages: list[str] = settings["root_packages"]
    contracts = list(_layers(settings["contracts"]))
    imports = read_imports(root, (*packages, *OUTSIDE))
    installed = [one for one in imports if one.importer.partition(".")[0] in packages]
    return [
        *_circles(installed),
        *_upwards(installed, contracts),
        *_unnamed(root, packages, contracts),
        *_forbidden(imports),
    ]


def read_imports(root: Path, packages: Iterable[str]) -> list[Import]:
    """Return every import of one module by another, of those below `root`; a package is named with its `__init__`."""
    files = {_name(file.relative_to(root)): file for package in packages for file in (root / package).rglob("*.py")}
    found = set()
    for importer, file in files.items():
        for statement in _statements(ast.parse(file.read_text(encoding="utf-8"))):
            for name in _names(statement, importer):
                imported = _module(name, files)
                if imported is not None and imported != importer:
                    found.add(Import(importer, imported, statement.lineno))
    return sorted(found)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements of a module, however deep."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _statements(child)


def _name(file: Path) -> str:
    return ".".join(file.with_suffix("").parts)


def _names(statement: ast.stmt, importer: str) -> Iterator[str]:
    """Yield the dotted names that a statement may import: `from a import b` is the module a.b, or b of module a."""
    match statement:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            above = ".".join(importer.split(".")[:-level]) if level else ""
            package = ".".join(part for part in (above, module) if part)
            yield from (f"{package}.{alias.name}" for alias in names)


def _module(name: str, files: Mapping[str, Path]) -> str | None:
    """Return the module that a dotted name is, or is defined in."""
    while name:
        for module in (name, f"{name}.__init__"):
            if module in files:
                return module
        name = name.rpartition(".")[0]
    return None


def _circles(imports: Iterable[Import]) -> Iterator[str]:
    """Find circles of modules; and, in each folder, of the files and folders that it holds."""
    modules: dict[str, set[str]] = defaultdict(set)
    folders: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in imports:
        modules[one.importer].add(one.imported)
        ours, theirs = one.importer.split("."), one.imported.split(".")
        shared = next(number for number, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        folders["/".join(ours[:shared])][ours[shared]].add(theirs[shared])
    yield from _circle("modules", modules)
    for folder, graph in folders.items():
        yield from _circle(f"what {folder or 'the project'} holds", graph)


def _circle(what: str, graph: Mapping[str, set[str]]) -> Iterator[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"circle of {what}: {' <- '.join(error.args[1])}"


def _layers(contracts: Iterable[Mapping[str, Any]]) -> Iterator[Layers]:
    for contract in contracts:
        if contract["type"] == "layers":
            layers = tuple(frozenset(re.split(r"\s*\|\s*", layer)) for layer in contract["layers"])
            for container in contract.get("containers", [""]):
                yield Layers(container=container, layers=layers)


def _upwards(imports: Iterable[Import], contracts: Iterable[Layers]) -> Iterator[str]:
    """Find imports of a higher layer, or of another member of the same one."""
    for contract in contracts:
        for one in imports:
            ours, theirs = contract.place(one.importer), contract.place(one.imported)
            if ours is not None and theirs is not None and ours[1] != theirs[1] and theirs[0] <= ours[0]:
                yield f"upwards: {one}"


def _unnamed(root: Path, packages: Iterable[str], contracts: Iterable[Layers]) -> Iterator[str]:
    """Find packages, and folders of packages, that no contract gives a place."""
    named = {(contract.container, member) for contract in contracts for layer in contract.layers for member in layer}
    for package in packages:
        folders = {file.relative_to(root / package).parts[0] for file in (root / package).rglob("*/*.py")}
        expected = {("", package), *((package, folder) for folder in folders)}
        yield from (f"in no layer: {'/'.join(filter(None, each))}" for each in sorted(expected - named))


def _forbidden(imports: Iterable[Import]) -> Iterator[str]:
    """Find imports of tests and benches by what must not know of them."""
    for one in imports:
        ours, theirs = one.importer.partition(".")[0], one.imported.partition(".")[0]
        if theirs in _FORBIDDEN.get(ours, set() if ours in OUTSIDE else set(OUTSIDE)):
            yield f"forbidden: {one}"
