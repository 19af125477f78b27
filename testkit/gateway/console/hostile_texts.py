# SPDX-License-Identifier: Apache-2.0
"""
Texts that would run or load something where they are put into a page as they are: by the place that each is meant for.

After OWASP's Cross-Site Scripting Prevention Cheat Sheet and its Filter Evasion Cheat Sheet.
"""

from __future__ import annotations

from typing import Final

HOSTILE_TEXTS: Final = (
    "<script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</code></pre><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'><b onmouseover=alert(1)>",
    '" autofocus onfocus=alert(1) x="',
    "javascript:alert(1)//",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<math><mtext></title><style><img src onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<!--><script>alert(1)</script-->",
    "\u202e<b>\u2028</b>",
    "]]><script>alert(1)</script>",
    "<a href='javascript:alert(1)'>x</a>",
)
