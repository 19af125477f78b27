# SPDX-License-Identifier: Apache-2.0
"""The import graph: no circle, no import upwards, a layer for every folder, and tests and benches apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.environment import PROJECT
from testkit.system.import_graph import find_faults

PROJECT_FILE = """
[tool.importlinter]
root_packages = ["lower", "upper"]

[[tool.importlinter.contracts]]
name = "packages"
type = "layers"
layers = ["upper", "lower"]

[[tool.importlinter.contracts]]
name = "folders"
type = "layers"
containers = ["upper"]
layers = ["top", "left | right", "base"]
"""
TREE = {
    "lower/__init__.py": "",
    "lower/a.py": "",
    "lower/b.py": "from lower import a\nimport json",
    "upper/__init__.py": "",
    "upper/errors.py": "",
    "upper/base/__init__.py": "",
    "upper/base/x.py": "import lower.b\nfrom upper.errors import Error",
    "upper/left/__init__.py": "",
    "upper/left/x.py": "from upper.base.x import something",
    "upper/left/y.py": "from upper.left.x import something",
    "upper/right/__init__.py": "",
    "upper/right/x.py": "from upper.base import x",
    "upper/top/__init__.py": "from upper.left.y import something",
    "testkit/__init__.py": "",
    "testkit/x.py": "import upper.top",
    "tests/test_x.py": "from testkit.x import something",
    "bench/x.py": "from testkit.x import something",
}
"""A tree without a fault, in which one is planted."""


def faults_of(root: Path, **planted: str) -> list[str]:
    """Write the tree with other or further files, and return what is found in it."""
    files = {"pyproject.toml": PROJECT_FILE, **TREE}
    files |= {name.replace("__", "/") + ".py": text for name, text in planted.items()}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return find_faults(root)


def test_the_project_has_no_circle_and_no_import_upwards_and_every_folder_has_a_layer() -> None:
    assert find_faults(PROJECT) == []


def test_a_tree_without_a_fault_passes(tmp_path: Path) -> None:
    assert faults_of(tmp_path) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import lower.b",
        "from lower import b",
        "from lower.b import something",
        "from .b import something",
        "from . import b",
        "def f():\n    from lower.b import something",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lower.b",
        "import lower.b as other",
    ],
)
def test_a_circle_of_two_modules_is_found(statement: str, tmp_path: Path) -> None:
    (modules, folder) = faults_of(tmp_path, lower__a=statement)
    assert modules in {
        "circle of modules: lower.a <- lower.b <- lower.a",
        "circle of modules: lower.b <- lower.a <- lower.b",
    }
    assert folder.startswith("circle of what lower holds")


def test_a_circle_of_folders_is_found_where_no_modules_form_one(tmp_path: Path) -> None:
    found = faults_of(tmp_path, lower__deep__x="import lower.b", lower__c="import lower.deep.y", lower__deep__y="")
    assert found == ["in no layer: lower/deep"]
    found = faults_of(tmp_path, lower__deep__x="import lower.b", lower__b="import lower.deep.y", lower__deep__y="")
    assert [one.partition(":")[0] for one in found] == ["circle of what lower holds", "in no layer"]


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"lower__c": "import upper.errors"}, "upwards: lower.c imports upper.errors (line 1)"),
        ({"upper__base__y": "import upper.left.x"}, "upwards: upper.base.y imports upper.left.x (line 1)"),
        ({"upper__right__y": "from upper.left import x"}, "upwards: upper.right.y imports upper.left.x (line 1)"),
        ({"upper__base__y": "\nfrom upper import top"}, "upwards: upper.base.y imports upper.top.__init__ (line 2)"),
        ({"upper__new__x": ""}, "in no layer: upper/new"),
        ({"upper__top__x": "import testkit.x"}, "forbidden: upper.top.x imports testkit.x (line 1)"),
        ({"lower__c": "def f():\n    import bench.x"}, "forbidden: lower.c imports bench.x (line 2)"),
        ({"tests__test_y": "import bench.x"}, "forbidden: tests.test_y imports bench.x (line 1)"),
        ({"bench__y": "from tests.test_x import x"}, "forbidden: bench.y imports tests.test_x (line 1)"),
        ({"tests__test_y": "from tests.test_x import x"}, "forbidden: tests.test_y imports tests.test_x (line 1)"),
        (
            {"tests__deep__test_y": "from ..test_x import x"},
            "forbidden: tests.deep.test_y imports tests.test_x (line 1)",
        ),
        (
            {"tests__conftest": "", "tests__test_y": "def f():\n    from tests import conftest"},
            "forbidden: tests.test_y imports tests.conftest (line 2)",
        ),
        ({"testkit__y": "from tests.test_x import x"}, "forbidden: testkit.y imports tests.test_x (line 1)"),
        ({"testkit__y": "from bench.x import x"}, "forbidden: testkit.y imports bench.x (line 1)"),
    ],
)
def test_an_import_that_must_not_be_is_found(planted: dict[str, str], found: str, tmp_path: Path) -> None:
    assert found in faults_of(tmp_path, **planted)
