# SPDX-License-Identifier: Apache-2.0
"""
What is compiled before the tests is all that they would compile of verification.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from testkit.environment import PROJECT

COMPILE: Final = """
import json
from ledger.verify import hashing, kernel
from testkit.compiled_code import compile_verification

kept = {
    name: value
    for module in (hashing, kernel)
    for name, value in vars(module).items()
    if type(getattr(value, "_cache", None)).__name__ == "FunctionCache"
}
before = [name for name, function in kept.items() if function.signatures]
done = compile_verification()
print(json.dumps([before, done, {name: len(function.signatures) for name, function in kept.items()}]))
"""


def test_every_function_whose_compiled_code_is_kept_is_compiled_once() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    before, is_done, signatures = json.loads(done.stdout)
    assert (before, is_done) == ([], True)
    names = {"hash_leaves", "hash_tree", "bundle_spans", "row_spans", "check_entries", "check_columns"}
    assert signatures == dict.fromkeys(names, 1)
    marked = [path.read_text(encoding="utf-8").count("\n@cached\n") for path in Path(PROJECT, "ledger").rglob("*.py")]
    assert sum(marked) == len(names)
