# SPDX-License-Identifier: Apache-2.0
"""
The README shows a part of what the scene prints. That the scene prints it is shown in `tests/engines/test_scene.py`.
"""

from __future__ import annotations

from testkit.system.scene_page import PAGE, README, printed_on


def test_the_readme_shows_ten_lines_of_the_scene() -> None:
    chosen = printed_on(README.read_text(encoding="utf-8")).splitlines()
    assert len(chosen) == 10
    assert set(chosen) <= set(printed_on(PAGE.read_text(encoding="utf-8")).splitlines())
