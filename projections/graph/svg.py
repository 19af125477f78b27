# SPDX-License-Identifier: Apache-2.0
"""
Cards in titled panels with arrows between them, as SVG 1.1. Pure and deterministic: equal input gives equal bytes.

Text comes from users: it is escaped, unprintable characters are shown as U+FFFD, and it is cut to its card by an
estimate of its width (the card's tooltip has it whole). There is no script, no style sheet, and nothing is loaded.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from projections.graph.display_names import legible

CARD_WIDTH: Final = 232
CARD_HEIGHT: Final = 52
CARD_GAP: Final = 10
PANEL_PADDING: Final = 14
PANEL_HEAD: Final = 34
LINE_HEIGHT: Final = 22
PANEL_WIDTH: Final = CARD_WIDTH + 2 * PANEL_PADDING

INK: Final = "#1c2333"
MUTED: Final = "#566078"
PANEL: Final = "#f5f7fb"
PANEL_EDGE: Final = "#dde3ee"
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"

_NARROW: Final = frozenset("fijlrtI.,:;|!'()[]{}/ ")
_WIDE: Final = frozenset("mwMW%@")
_SIGNS: Final = frozenset("<>=+~^#&")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """
    A box with two lines of text: `title`, and `detail` below it.

    `colour` (as in CSS) is that of the mark at its left edge. `kind` is shown in the tooltip only.
    """

    title: str
    detail: str
    colour: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Cards below a heading. `more` counts cards that were left out; `empty` is the text of a panel without cards."""

    heading: str
    cards: Sequence[Card]
    more: int = 0
    empty: str = "nothing known"

    @property
    def height(self) -> int:
        """The height of the panel with its content, in px."""
        lines = bool(self.more) + (not self.cards)
        cards = len(self.cards) * (CARD_HEIGHT + CARD_GAP) - (CARD_GAP if self.cards else 0)
        return PANEL_HEAD + cards + lines * LINE_HEIGHT + PANEL_PADDING

    def card_middle(self, number: int, top: int) -> int:
        """Return the y of the middle of card `number` (0-based) in a panel whose upper edge is at y = `top`."""
        return top + PANEL_HEAD + number * (CARD_HEIGHT + CARD_GAP) + CARD_HEIGHT // 2


def panel_svg(panel: Panel, *, left: int, top: int) -> list[str]:
    """
    Return the SVG elements of a panel with its cards; `left` and `top` are its upper left corner, in px.
    """
    lines = [
        (
            f'<rect x="{left}" y="{top}" width="{PANEL_WIDTH}" height="{panel.height}" rx="12" fill="{PANEL}" '
            f'stroke="{PANEL_EDGE}"/>'
        ),
        text_svg(panel.heading, left + PANEL_PADDING, top + 22, size=13, weight=600, colour=MUTED),
    ]
    at = top + PANEL_HEAD
    for card in panel.cards:
        lines += card_svg(card, left=left + PANEL_PADDING, top=at)
        at += CARD_HEIGHT + CARD_GAP
    if panel.more or not panel.cards:
        note = f"and {panel.more} more" if panel.more else panel.empty
        at = at + 6 if panel.cards else at + 12
        lines.append(text_svg(note, left + PANEL_PADDING, at, size=12, colour=MUTED))
    return lines


def card_svg(card: Card, *, left: int, top: int, width: int = CARD_WIDTH, height: int = CARD_HEIGHT) -> list[str]:
    """
    Return the SVG elements of a card; `left` and `top` are its upper left corner. All numbers are in px.

    Text that is too wide is cut to the card; its tooltip has up to 1,000 characters.
    """
    text_px = width - 28
    return [
        "<g>",
        f"<title>{shown(f'{card.kind}: {card.title}', 1_000)}{shown(f' ({card.detail})', 1_000)}</title>",
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="{PANEL_EDGE}"/>',
        f'<rect x="{left}" y="{top}" width="6" height="{height}" rx="3" fill="{card.colour}"/>',
        text_svg(fitted(card.title, text_px, size=15), left + 16, top + height // 2 - 4, size=14, weight=600),
        text_svg(fitted(card.detail, text_px, size=12), left + 16, top + height // 2 + 14, size=12, colour=MUTED),
        "</g>",
    ]


def text_svg(
    text: str, x: int, y: int, *, size: int, weight: int = 400, colour: str = INK, anchor: str = "start"
) -> str:
    """
    Return an SVG element with one line of text, cut to 200 characters.

    `x` and `y` are the point of the baseline that `anchor` (SVG's text-anchor) names; `size` is the font size in px.
    """
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="{anchor}">'
        f"{shown(text, 200)}</text>"
    )


def arrow_svg(points: Sequence[tuple[int, int]], *, colour: str, is_dashed: bool = False) -> str:
    """
    Return an SVG path with an arrowhead through `points` (x, y), at least two; it is horizontal at each point.
    """
    (x, y), *rest = points
    path = f"M{x} {y}"
    for next_x, next_y in rest:
        bend = (next_x - x) // 2
        path += f" C{x + bend} {y} {next_x - bend} {next_y} {next_x} {next_y}" if next_y != y else f" H{next_x}"
        x, y = next_x, next_y
    dashes = ' stroke-dasharray="5 4"' if is_dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes} marker-end="url(#head)" '
        'stroke-opacity="0.75"/>'
    )


def document_svg(lines: Sequence[str], *, width: int, height: int, title: str) -> str:
    """
    Return an SVG document of `width` x `height` px that holds the elements `lines`; `title` is its accessible name.
    """
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{MUTED}"/></marker></defs>'
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">'
            ),
            f"<title>{shown(title, 1_000)}</title>",
            head,
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def shown(text: str, length_max: int) -> str:
    """
    Return the first `length_max` characters of `text`, legible and escaped for XML.
    """
    return escape(legible(text[:length_max]))


def fitted(text: str, width_max_px: float, *, size: int) -> str:
    """
    Return `text` if it fits into `width_max_px` at font size `size` (px), else the prefix that fits and an ellipsis.
    """
    if width_px(text, size) <= width_max_px:
        return text
    left_px, end = width_max_px - width_px("…", size), 0
    for character in text:
        left_px -= width_px(character, size)
        if left_px < 0:
            break
        end += 1
    return f"{text[:end].rstrip()}…"


def width_px(text: str, size: int) -> float:
    """
    Estimate the width of `text` in px at font size `size` (px); fonts differ, so the estimate is rather too wide.
    """
    return sum(map(_em, text)) * size


def _em(character: str) -> float:
    """Estimate the width of a character in ems."""
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _NARROW:
        return 0.36
    if character in _WIDE:
        return 0.95
    if character in _SIGNS:
        return 0.84
    return 0.7 if character.isupper() or not character.isascii() else 0.61
