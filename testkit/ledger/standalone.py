# SPDX-License-Identifier: Apache-2.0
"""Runs `verify_lakeproof.py`, the verifier that third parties hold, in this process, and says how it ended."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from ledger.format.note import VerifierKey
from testkit.environment import PROJECT

SCRIPT = PROJECT / "verify_lakeproof.py"


def load() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("verify_lakeproof", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = load()
MODULE.verifies = functools.lru_cache(MODULE.verifies)  # type: ignore[attr-defined]  # pure, and slow: tests ask often


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How it ended, what it said, and the fault and index that it named, if any."""

    code: int
    output: str
    fault: str | None = None
    index: int | None = None


def standalone(what: bytes | Path, keys: Sequence[VerifierKey], witnesses: Sequence[VerifierKey] = ()) -> Ran:
    """Verify a directory, or a bundle that is written to a file first."""
    if isinstance(what, bytes):
        with tempfile.NamedTemporaryFile() as file:
            file.write(what)
            file.flush()
            return standalone(Path(file.name), keys, witnesses)
    return run(
        str(what),
        *(o for k in keys for o in ("--key", k.format())),
        *(o for w in witnesses for o in ("--witness", w.format())),
    )


def run(*arguments: str) -> Ran:
    """Run the script with these arguments."""
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["verify_lakeproof.py", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            MODULE.main()
        except SystemExit as ended:
            error = ended.__context__
            code = ended.code
            assert isinstance(code, int)
            if isinstance(error, MODULE.BrokenError):
                return Ran(code=code, output=output.getvalue(), fault=error.fault, index=error.index)
            return Ran(code=code, output=output.getvalue())
    return Ran(code=0, output=output.getvalue())
