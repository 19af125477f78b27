# SPDX-License-Identifier: Apache-2.0
"""
Lineage around one table as a picture: what it was made from to its left, what was made from it to its right. Pure.

Here is where each box and line goes, in px; the template draws them. Text that does not fit is cut by an estimate of
its width, and the box's tooltip has it whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.console.shown_keys import shown_name, shown_text
from projections.graph.display_names import display_name
from projections.graph.svg import fitted

BOX_WIDTH: Final = 190
HEAD: Final = 34
ROW: Final = 18
GAP_X: Final = 70
GAP_Y: Final = 12
MARGIN: Final = 8
LAYER_MAX: Final = 12
"""Boxes above each other; the list beside the picture has all."""
COLUMNS_MAX: Final = 12
"""Of one box."""
FONT_SIZE: Final = 13
COLUMN_SIZE: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A column in a box: the baseline of its text."""

    text: str
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A table or data set; `title` is its whole name, `is_this` is the one that is asked about."""

    key: str
    title: str
    text: str
    x: int
    y: int
    height: int
    is_this: bool
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line from one box to another, or between columns; `path` is SVG's."""

    path: str
    words: str
    is_of_columns: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Boxes and lines, `width` by `height`; `left_out` boxes did not fit."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[Line]
    left_out: int


def lineage_picture(lineage: Mapping[str, Any], *, with_columns: bool) -> Picture:
    """
    Return the picture of an answer of `GET /v1/tables/{…}/lineage`.
    """
    key = str(lineage["key"])
    layers, left_out = _layers(lineage, key)
    shown = {each for layer in layers.values() for each in layer}
    columns = _columns_of(lineage["columns"], shown) if with_columns else {}
    boxes = {box.key: box for box in _boxes(layers, key, columns)}
    lines = list(_lines(lineage, boxes))
    if with_columns:
        lines += _column_lines(lineage["columns"], boxes)
    return Picture(
        width=max(box.x for box in boxes.values()) + BOX_WIDTH + MARGIN,
        height=max(box.y + box.height for box in boxes.values()) + MARGIN,
        boxes=list(boxes.values()),
        lines=lines,
        left_out=left_out,
    )


def _layers(lineage: Mapping[str, Any], key: str) -> tuple[dict[int, list[str]], int]:
    """Return keys by how far to the right they are drawn, each once, and how many were left out."""
    layers: dict[int, list[str]] = {0: [key]}
    placed, left_out = {key}, 0
    for side, end, edges in ((-1, "source", lineage["upstream"]), (1, "target", lineage["downstream"])):
        for edge in edges:
            other = str(edge[end])
            if other in placed:
                continue
            placed.add(other)
            layer = layers.setdefault(side * int(edge["hops"]), [])
            if len(layer) < LAYER_MAX:
                layer.append(other)
            else:
                left_out += 1
    return layers, left_out


def _columns_of(columns: Sequence[Mapping[str, Any]], shown: set[str]) -> dict[str, list[str]]:
    """Return the columns to be drawn in each box."""
    found: dict[str, dict[str, None]] = {}
    for each in columns:
        if each["source"] in shown and each["target"] in shown:
            found.setdefault(str(each["source"]), {})[str(each["source_column"])] = None
            if each["target_column"] is not None:
                found.setdefault(str(each["target"]), {})[str(each["target_column"])] = None
    return {key: sorted(names)[:COLUMNS_MAX] for key, names in found.items()}


def _boxes(layers: Mapping[int, Sequence[str]], key: str, columns: Mapping[str, Sequence[str]]) -> Iterator[Box]:
    """Yield the boxes, each layer in the middle of the picture's height."""
    heights = {
        layer: sum(_height(columns.get(each, ())) + GAP_Y for each in keys) - GAP_Y for layer, keys in layers.items()
    }
    tallest, leftmost = max(heights.values()), min(layers)
    for layer in sorted(layers):
        x = MARGIN + (layer - leftmost) * (BOX_WIDTH + GAP_X)
        y = MARGIN + (tallest - heights[layer]) // 2
        for each in layers[layer]:
            names = columns.get(each, ())
            yield Box(
                key=each,
                title=shown_text(each),
                text=fitted(_name(each), BOX_WIDTH - 20, size=FONT_SIZE),
                x=x,
                y=y,
                height=_height(names),
                is_this=each == key,
                rows=[
                    Row(text=fitted(name, BOX_WIDTH - 24, size=COLUMN_SIZE), y=y + HEAD + number * ROW + 9)
                    for number, name in enumerate(names)
                ],
            )
            y += _height(names) + GAP_Y


def _height(names: Sequence[str]) -> int:
    return HEAD + len(names) * ROW + (4 if names else 0)


def _name(key: str) -> str:
    """Return what a box says: the names of a table without its catalog, those of a data set with its place."""
    shown = display_name(key)
    is_of_catalog = shown.place is None or key.startswith(("table:", "view:"))
    return shown_name(shown.name if is_of_catalog else f"{shown.place} {shown.name}", beside="")


def _lines(lineage: Mapping[str, Any], boxes: Mapping[str, Box]) -> Iterator[Line]:
    for edge in dict.fromkeys(
        (e["source"], e["target"], e["job"]) for e in (*lineage["upstream"], *lineage["downstream"])
    ):
        source, target, job = edge
        if source in boxes and target in boxes:
            one, other = boxes[source], boxes[target]
            words = f"{_name(target)} was made from {_name(source)}" + (f" by {shown_text(job)}" if job else "")
            yield Line(
                path=_curve(one, one.y + HEAD // 2, other, other.y + HEAD // 2), words=words, is_of_columns=False
            )


def _column_lines(columns: Sequence[Mapping[str, Any]], boxes: Mapping[str, Box]) -> Iterator[Line]:
    for each in columns:
        one, other = boxes.get(each["source"]), boxes.get(each["target"])
        if one is None or other is None:
            continue
        start = _row_of(one, each["source_column"])
        end = other.y + HEAD // 2 if each["target_column"] is None else _row_of(other, each["target_column"])
        if start is not None and end is not None:
            words = f"{each['target_column'] or 'every column'} was made from {each['source_column']}"
            yield Line(path=_curve(one, start, other, end), words=words, is_of_columns=True)


def _row_of(box: Box, column: str) -> int | None:
    text = fitted(column, BOX_WIDTH - 24, size=COLUMN_SIZE)
    return next((row.y - 4 for row in box.rows if row.text == text), None)


def _curve(one: Box, start_y: int, other: Box, end_y: int) -> str:
    """Return a curve from the right edge of a box to the left edge of another, wherever that is."""
    x, to = one.x + BOX_WIDTH, other.x
    bend = max(GAP_X // 2, abs(to - x) // 2)
    return f"M{x} {start_y} C{x + bend} {start_y} {to - bend} {end_y} {to} {end_y}"
