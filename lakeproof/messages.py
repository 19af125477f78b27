# SPDX-License-Identifier: Apache-2.0
"""
Messages for whoever runs a command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]
"""Takes one message, without a line break at its end."""
