# SPDX-License-Identifier: Apache-2.0
"""
What a check of `lakeproof doctor` says: ok, warning or problem, and in words what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """Whether somebody has to do something: nobody, perhaps, certainly."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer of a check; `advice` says what to do, and is empty if that is nothing."""

    result: Result
    expected: str
    found: str
    advice: str = ""


def ok(*, expected: str, found: str) -> Finding:
    """
    Return that all is as it should be.
    """
    return Finding(result=Result.OK, expected=expected, found=found)


def warning(*, expected: str, found: str, advice: str) -> Finding:
    """
    Return what may be meant, but should be looked at.
    """
    return Finding(result=Result.WARNING, expected=expected, found=found, advice=advice)


def problem(*, expected: str, found: str, advice: str) -> Finding:
    """
    Return what keeps something from working, or makes it unsafe.
    """
    return Finding(result=Result.PROBLEM, expected=expected, found=found, advice=advice)


def said(error: Exception) -> str:
    """
    Return the message of an error on one line; its kind if it has none.
    """
    return " ".join(str(error).split()) or type(error).__name__
