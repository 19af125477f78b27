# SPDX-License-Identifier: Apache-2.0
"""
The errors of detection: one root, and the cases that somebody acts on differently.
"""

from __future__ import annotations

from ledger.format.events import ScanFault


class DetectionError(Exception):
    """Root of everything `spark_detect` raises on purpose."""


class PackageMissingError(DetectionError):
    """Spark or numba is not installed; the message says what to install."""


class JavaError(DetectionError):
    """There is no Java that Spark runs on; the message says which was found and what to install."""


class ScanError(DetectionError):
    """
    A snapshot can not be scanned, now or later: its scan is recorded as failed, and no other scan is held up.

    `fault` is the class of what is wrong, `file` the location at fault.
    """

    def __init__(self, fault: ScanFault, *, file: str, message: str) -> None:
        super().__init__(f"{file}: {message}")
        self.fault = fault
        self.file = file
