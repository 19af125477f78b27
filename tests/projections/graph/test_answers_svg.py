# SPDX-License-Identifier: Apache-2.0
"""
The picture of a table's answers: well-formed, the same every time, and nothing of a name but text.
"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.format.event import format_key
from projections.errors import ProjectionError
from projections.graph.answers import (
    ColumnFound,
    DataRef,
    GoverningPolicy,
    RunSummary,
    TableAnswers,
    TableSnapshot,
    TableWrite,
)
from projections.graph.answers_svg import CARDS_MAX, draw_answers
from projections.graph.answers_text import format_answers
from projections.graph.display_names import display_name, key_of_table, legible
from projections.graph.labels import VertexLabel
from projections.graph.policy_scope import Governs
from projections.graph.scan_coverage import coverage_of
from projections.graph.svg import CARD_WIDTH, fitted, width_px
from projections.lineage.runs import Omitted

SVG = "{http://www.w3.org/2000/svg}"
EMPTY = TableAnswers(
    table="table:lake/sales/orders",
    table_uuid=None,
    writes=(),
    snapshots=(),
    ungoverned=(),
    made_from=(),
    made_by=(),
    allowed_by=(),
    found=(),
    evidence=coverage_of([]),
    read_by=(),
    read_into=(),
    omitted=None,
)


def answers_about(name: str, *, count: int = 1) -> TableAnswers:
    """Answers in which everything is called `name`, or as XML and keys can hold it."""
    key = format_key("table", ["lake", name])
    snapshots = tuple(
        TableSnapshot(index=index, snapshot_id=name, governed=index % 2 == 0, operation=name) for index in range(count)
    )
    return replace(
        EMPTY,
        table=key,
        writes=tuple(
            TableWrite(
                index=index,
                recorded_at="2026-11-20T12:00:00.000000Z",
                actor="a" * 32,
                principal=f"{name}{index}",
                operation=name,
                decision="approved",
                outcome="accepted",
                decided_by=(),
            )
            for index in range(count)
        ),
        snapshots=snapshots,
        ungoverned=tuple(snapshot for snapshot in snapshots if not snapshot.governed),
        made_from=tuple(DataRef(label=VertexLabel.TABLE, key=key) for _ in range(count)),
        made_by=tuple(RunSummary(job=(name, name), engine=name, actor=name) for _ in range(count)),
        allowed_by=tuple(
            GoverningPolicy(id=name, version=version, governs=tuple(Governs), is_in_force=version == 0)
            for version in range(count)
        ),
        found=tuple(
            ColumnFound(column=name, kind="email", confidence_percent=92, snapshots=count) for _ in range(count)
        ),
        read_by=tuple(RunSummary(job=None, engine=name, actor=None) for _ in range(count)),
        read_into=tuple(
            DataRef(label=VertexLabel.DATASET, key=format_key("dataset", [name, name])) for _ in range(count)
        ),
    )


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314 - our own document, without any entity


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in parsed(picture).iter(f"{SVG}text")]


def test_every_question_has_its_panel_even_without_an_answer() -> None:
    said = texts(draw_answers(EMPTY))
    for heading in (
        *("Who wrote it?", "From what was it made?", "Which policy allowed it?", "What was found in it?"),
        *(
            "Who else reads it?",
            "nobody yet",
            "no lineage known",
            "no policy judged it",
            "not known: it was not scanned",
        ),
    ):
        assert heading in said
    assert "sales.orders, in catalog lake" in said


def test_everything_that_is_known_is_shown_and_what_does_not_fit_is_counted() -> None:
    said = texts(draw_answers(answers_about("thing", count=CARDS_MAX + 3)))
    assert said.count("thing: email") == CARDS_MAX
    assert said.count("and 3 more") == 7
    assert "and 4 more" in said  # the writers: one of them is unknown
    assert "4 snapshots, ungoverned" in said


def test_cards_do_not_overlap_and_nothing_is_outside_the_picture() -> None:
    for count in (0, 1, 3, CARDS_MAX + 1):
        root = parsed(draw_answers(answers_about("thing", count=count) if count else EMPTY))
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        boxes = []
        for box in root.iter(f"{SVG}rect"):
            x, y, w, h = (float(box.attrib.get(name, "0")) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height
            if w == CARD_WIDTH and box.attrib["fill"] == "#ffffff":
                boxes.append((x, y, x + w, y + h))
        for position, (left, top, right, bottom) in enumerate(boxes):
            for other_left, other_top, other_right, other_bottom in boxes[position + 1 :]:
                assert right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top


NAMES = (
    "<script>alert(1)</script>",
    '"><image href="https://example.com"/>',
    "&amp;]]>",
    "\u202eright to left",
    "nul\x00 esc\x1b[31m",
    "表" * 200,
    "🧊",
    " ",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_text_and_nothing_else(name: str) -> None:
    picture = draw_answers(answers_about(name))
    root = parsed(picture)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        *("svg", "title", "defs", "marker", "path", "rect", "g", "text"),
    }
    assert not {attribute for element in root.iter() for attribute in element.attrib if "href" in attribute}
    assert "\x1b" not in picture
    assert "\u202e" not in picture
    assert not [line for line in format_answers(answers_about(name)) if legible(line) != line]


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1, max_size=30))
def test_any_name_gives_a_document_and_the_same_one_every_time(name: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in name):
        return  # no log holds such a name
    picture = draw_answers(answers_about(name))
    parsed(picture)
    assert picture == draw_answers(answers_about(name))


def test_a_name_is_cut_to_its_card_and_whole_in_its_tooltip() -> None:
    assert fitted("short", 100, size=14) == "short"
    cut = fitted("a" * 100, 100, size=14)
    assert cut.endswith("…")
    assert width_px(cut, 14) <= 100
    assert f"table: {'a' * 100}" in draw_answers(answers_about("a" * 100))


def test_keys_are_said_as_people_say_them() -> None:
    assert (display_name("table:lake/a/b/t").name, display_name("table:lake/a/b/t").place) == ("a.b.t", "lake")
    column = display_name(format_key("column", ["table:lake/a/t", "address.mail"]))
    assert (column.name, column.place) == ("a.t.address.mail", "lake")
    assert display_name("engine:spark").name == "spark"
    assert display_name("table:cut#0123").name == "table:cut#0123"


def test_a_table_is_named_by_its_key_or_by_dots() -> None:
    assert key_of_table("lake.sales.orders") == "table:lake/sales/orders"
    assert key_of_table("table:lake/a.b/t%2Fx") == "table:lake/a.b/t%2Fx"
    for name in ("orders", "", "lake..orders", "table:", "table:lake/a b", "\ud800.t"):
        with pytest.raises(ProjectionError, match="expected <catalog>"):
            key_of_table(name)


def test_what_is_not_drawn_of_a_table_is_said_in_words_and_in_the_picture() -> None:
    omitted = replace(EMPTY, omitted=Omitted(edges=7, refused=1))
    assert "7 edges, 1 refused" in "".join(texts(draw_answers(omitted)))
    assert "  7 edges, 1 refused" in format_answers(omitted)
    assert "not drawn" not in draw_answers(EMPTY)
    assert not any("not drawn" in line for line in format_answers(EMPTY))
