# SPDX-License-Identifier: Apache-2.0
"""
A lakehouse for each test.
"""

from __future__ import annotations

from testkit.spark_detect.fixtures import lakehouse

__all__ = ["lakehouse"]
