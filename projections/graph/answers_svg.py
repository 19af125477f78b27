# SPDX-License-Identifier: Apache-2.0
"""
The five answers about a table as one picture. Pure.

Five columns, from left to right: what the table was made from; who wrote it; the table with the policies that allow it;
its snapshots and what was found in them; who reads it and what is made from it. The middle of a column stays free for
arrows that cross it; its panels are above and below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from projections.graph.answers import DataRef, GoverningPolicy, RunSummary, TableAnswers, TableSnapshot, TableWrite
from projections.graph.answers_text import format_omitted
from projections.graph.display_names import display_name
from projections.graph.labels import VertexLabel
from projections.graph.svg import (
    CARD_WIDTH,
    MUTED,
    PANEL_PADDING,
    PANEL_WIDTH,
    Card,
    Panel,
    arrow_svg,
    card_svg,
    document_svg,
    fitted,
    panel_svg,
    text_svg,
    width_px,
)

CARDS_MAX: Final = 6
GUTTER: Final = 72
MARGIN: Final = 32
LANE: Final = 26
"""Half of the height that is kept free in the middle of a column."""

TITLE_HEIGHT: Final = 92
LEGEND_HEIGHT: Final = 56
TABLE_HEIGHT: Final = 76

UNGOVERNED: Final = "#c02b2b"
FOUND: Final = "#b3446c"
COLOURS: Final = {
    VertexLabel.TABLE: "#1f5fbf",
    VertexLabel.DATASET: "#5c7a99",
    VertexLabel.PERSON: "#7b4bb3",
    VertexLabel.PIPELINE: "#0f7b6c",
    VertexLabel.POLICY: "#a86400",
    VertexLabel.SNAPSHOT: "#3d8bd4",
    VertexLabel.CLASSIFICATION: FOUND,
}
_LEGEND: Final = (
    ("table or view", COLOURS[VertexLabel.TABLE]),
    ("other data set", COLOURS[VertexLabel.DATASET]),
    ("person", COLOURS[VertexLabel.PERSON]),
    ("job", COLOURS[VertexLabel.PIPELINE]),
    ("policy", COLOURS[VertexLabel.POLICY]),
    ("snapshot", COLOURS[VertexLabel.SNAPSHOT]),
    ("personal data found", FOUND),
    ("ungoverned: behind the gateway", UNGOVERNED),
)

T = TypeVar("T")


@dataclass(slots=True)
class _Sheet:
    """
    The elements drawn so far; `middle` is the y of the table's middle, in px.

    Arrows are drawn over panels, so that they can be followed into a panel; none crosses a card.
    """

    middle: int
    arrows: list[str] = field(default_factory=list)
    panels: list[str] = field(default_factory=list)


def draw_answers(answers: TableAnswers) -> str:
    """
    Return the answers as an SVG document, which is always the same for equal answers.
    """
    sources, readers = _sources(answers), (_readers(answers), _targets(answers))
    written, snapshots = (_writers(answers), _jobs(answers)), (_snapshots(answers), _findings(answers))
    policies = _policies(answers)
    above = max(written[0].height, snapshots[0].height, readers[0].height, sources.height // 2, TABLE_HEIGHT) + LANE
    below = max(
        *(panel.height + LANE for panel in (written[1], snapshots[1], readers[1])),
        sources.height // 2 + LANE,
        TABLE_HEIGHT // 2 + 40 + policies.height,
    )
    sheet = _Sheet(middle=TITLE_HEIGHT + above)
    lefts = [MARGIN + column * (PANEL_WIDTH + GUTTER) for column in range(5)]
    table_left, table_right = lefts[2] + PANEL_PADDING, lefts[2] + PANEL_PADDING + CARD_WIDTH

    _place(sheet, sources, left=lefts[0], top=sheet.middle - sources.height // 2)
    _flow_in(sheet, sources, top=sheet.middle - sources.height // 2, lefts=lefts, table_left=table_left)
    for panel, top in _above_and_below(sheet, written):
        _place(sheet, panel, left=lefts[1], top=top)
        _into_table(sheet, panel, top=top, right=lefts[1] + PANEL_WIDTH - PANEL_PADDING, table_left=table_left)
    _place_table(sheet, answers, left=table_left)
    policies_top = sheet.middle + TABLE_HEIGHT // 2 + 40
    _place(sheet, policies, left=lefts[2], top=policies_top)
    if policies.cards:
        x = lefts[2] + PANEL_WIDTH // 2
        sheet.arrows.append(_up(x, policies_top, sheet.middle + TABLE_HEIGHT // 2))
    for panel, top in _above_and_below(sheet, snapshots):
        _place(sheet, panel, left=lefts[3], top=top)
        _out_of_table(sheet, panel, top=top, left=lefts[3] + PANEL_PADDING, table_right=table_right)
    for panel, top in _above_and_below(sheet, readers):
        _place(sheet, panel, left=lefts[4], top=top)
        _flow_out(sheet, panel, top=top, lefts=lefts, table_right=table_right)
    width, height = lefts[4] + PANEL_WIDTH + MARGIN, sheet.middle + below + LEGEND_HEIGHT + MARGIN // 2
    title = _title(answers)
    lines = [*sheet.panels, *sheet.arrows, *_heading(answers, width), *_legend(height)]
    return document_svg(lines, width=width, height=height, title=title)


def _title(answers: TableAnswers) -> str:
    named = display_name(answers.table)
    return named.name if named.place is None else f"{named.name}, in catalog {named.place}"


def _heading(answers: TableAnswers, width: int) -> list[str]:
    questions = "who wrote it · from what it was made · which policy allowed it · what was found · who else reads it"
    omitted = "" if answers.omitted is None else f"lineage reported and not drawn: {format_omitted(answers.omitted)}"
    return [
        text_svg(fitted(_title(answers), width - 2 * MARGIN - 140, size=24), MARGIN, 44, size=22, weight=700),
        text_svg(questions, MARGIN, 68, size=13, colour=MUTED),
        *([text_svg(omitted, MARGIN, 86, size=12, colour=MUTED)] if omitted else []),
        text_svg("Lakeproof", width - MARGIN, 44, size=13, weight=600, colour=MUTED, anchor="end"),
    ]


def _legend(height: int) -> list[str]:
    lines, x, y = [], MARGIN, height - 24
    for name, colour in _LEGEND:
        lines.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="3" fill="{colour}"/>')
        lines.append(text_svg(name, x + 18, y, size=12, colour=MUTED))
        x += 18 + int(width_px(name, 12)) + 20
    return lines


def _above_and_below(sheet: _Sheet, panels: tuple[Panel, Panel]) -> list[tuple[Panel, int]]:
    upper, lower = panels
    return [(upper, sheet.middle - LANE - upper.height), (lower, sheet.middle + LANE)]


def _place(sheet: _Sheet, panel: Panel, *, left: int, top: int) -> None:
    sheet.panels += panel_svg(panel, left=left, top=top)


def _place_table(sheet: _Sheet, answers: TableAnswers, *, left: int) -> None:
    named = display_name(answers.table)
    detail = f"table in {named.place}" if named.place else "table"
    card = Card(title=named.name, detail=detail, colour=COLOURS[VertexLabel.TABLE], kind="table")
    sheet.panels += card_svg(card, left=left, top=sheet.middle - TABLE_HEIGHT // 2, height=TABLE_HEIGHT)
    sheet.panels.append(
        f'<rect x="{left}" y="{sheet.middle - TABLE_HEIGHT // 2}" width="{CARD_WIDTH}" height="{TABLE_HEIGHT}" rx="8" '
        f'fill="none" stroke="{COLOURS[VertexLabel.TABLE]}" stroke-width="2"/>'
    )


def _flow_in(sheet: _Sheet, panel: Panel, *, top: int, lefts: Sequence[int], table_left: int) -> None:
    """Draw an arrow from each source to the table, through the middle of the second column."""
    for number, card in enumerate(panel.cards):
        points = [
            (lefts[0] + PANEL_WIDTH - PANEL_PADDING, panel.card_middle(number, top)),
            (lefts[1], sheet.middle),
            (table_left, sheet.middle),
        ]
        sheet.arrows.append(arrow_svg(points, colour=card.colour))


def _flow_out(sheet: _Sheet, panel: Panel, *, top: int, lefts: Sequence[int], table_right: int) -> None:
    """Draw an arrow from the table to each card of the last column, through the middle of the fourth."""
    for number, card in enumerate(panel.cards):
        points = [
            (table_right, sheet.middle),
            (lefts[3] + PANEL_WIDTH, sheet.middle),
            (lefts[4] + PANEL_PADDING, panel.card_middle(number, top)),
        ]
        sheet.arrows.append(arrow_svg(points, colour=card.colour))


def _into_table(sheet: _Sheet, panel: Panel, *, top: int, right: int, table_left: int) -> None:
    for number, card in enumerate(panel.cards):
        start = (right, panel.card_middle(number, top))
        sheet.arrows.append(arrow_svg([start, (table_left, _port(sheet, start[1]))], colour=card.colour))


def _out_of_table(sheet: _Sheet, panel: Panel, *, top: int, left: int, table_right: int) -> None:
    for number, card in enumerate(panel.cards):
        end = (left, panel.card_middle(number, top))
        sheet.arrows.append(arrow_svg([(table_right, _port(sheet, end[1])), end], colour=card.colour))


def _port(sheet: _Sheet, y: int) -> int:
    """Return the y at which an arrow from or to height `y` meets the table: above its middle, or below."""
    return sheet.middle + (TABLE_HEIGHT // 4 if y > sheet.middle else -TABLE_HEIGHT // 4)


def _up(x: int, bottom: int, top: int) -> str:
    return (
        f'<path d="M{x} {bottom} V{top}" fill="none" stroke="{COLOURS[VertexLabel.POLICY]}" stroke-width="1.6" '
        'stroke-dasharray="5 4" marker-end="url(#head)"/>'
    )


def _panel(heading: str, cards: Sequence[Card], *, empty: str) -> Panel:
    return Panel(heading=heading, cards=cards[:CARDS_MAX], more=max(0, len(cards) - CARDS_MAX), empty=empty)


def _sources(answers: TableAnswers) -> Panel:
    return _panel("From what was it made?", [_data(each) for each in answers.made_from], empty="no lineage known")


def _targets(answers: TableAnswers) -> Panel:
    return _panel("What is made from it?", [_data(each) for each in answers.read_into], empty="nothing known")


def _readers(answers: TableAnswers) -> Panel:
    return _panel("Who else reads it?", [_work(each) for each in answers.read_by], empty="nobody known")


def _jobs(answers: TableAnswers) -> Panel:
    return _panel("By which jobs?", [_work(each) for each in answers.made_by], empty="no job known")


def _writers(answers: TableAnswers) -> Panel:
    writes: dict[str, list[TableWrite]] = {}
    for write in answers.writes:
        writes.setdefault(write.principal or f"person {write.actor[:12]}", []).append(write)
    cards = [
        Card(title=who, detail=_outcomes(of_person), colour=COLOURS[VertexLabel.PERSON], kind="person")
        for who, of_person in writes.items()
    ]
    if answers.ungoverned:
        count = len(answers.ungoverned)
        detail = f"{count} snapshot{'s' if count > 1 else ''}, ungoverned"
        cards.insert(0, Card(title="somebody else", detail=detail, colour=UNGOVERNED, kind="unknown writer"))
    return _panel("Who wrote it?", cards, empty="nobody yet")


def _outcomes(writes: Sequence[TableWrite]) -> str:
    counts = Counter(write.outcome or write.decision for write in writes)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def _policies(answers: TableAnswers) -> Panel:
    return _panel(
        "Which policy allowed it?", [_policy(each) for each in answers.allowed_by], empty="no policy judged it"
    )


def _policy(policy: GoverningPolicy) -> Card:
    detail = f"version {policy.version}, on {' and '.join(policy.governs)}"
    return Card(
        title=policy.id,
        detail=detail if policy.is_in_force else f"{detail}, ended",
        colour=COLOURS[VertexLabel.POLICY] if policy.is_in_force else MUTED,
        kind="policy",
    )


def _snapshots(answers: TableAnswers) -> Panel:
    return _panel("Its latest snapshots", [_snapshot(each) for each in answers.snapshots], empty="none yet")


def _snapshot(snapshot: TableSnapshot) -> Card:
    operation = f", {snapshot.operation}" if snapshot.operation else ""
    return Card(
        title=snapshot.snapshot_id,
        detail=f"{'governed' if snapshot.governed else 'ungoverned'}{operation}, entry {snapshot.index}",
        colour=COLOURS[VertexLabel.SNAPSHOT] if snapshot.governed else UNGOVERNED,
        kind="snapshot",
    )


def _findings(answers: TableAnswers) -> Panel:
    cards = [
        Card(
            title=f"{found.column}: {found.kind}",
            detail=f"{found.confidence_percent} % sure, in {found.snapshots} snapshot{'s' * (found.snapshots > 1)}"
            + found.reviewed,
            colour=FOUND,
            kind="finding",
        )
        for found in answers.found
    ]
    return _panel("What was found in it?", cards, empty=answers.evidence.nothing)


def _data(data: DataRef) -> Card:
    named = display_name(data.key)
    colour = COLOURS[VertexLabel.DATASET if data.label is VertexLabel.DATASET else VertexLabel.TABLE]
    kind = {VertexLabel.TABLE: "table", VertexLabel.VIEW: "view"}.get(data.label, "data set")
    return Card(title=named.name, detail=f"{kind} in {named.place}" if named.place else kind, colour=colour, kind=kind)


def _work(work: RunSummary) -> Card:
    title = work.job[1] if work.job else (work.engine or "a run")
    parts = (work.job[0] if work.job else None, work.engine)
    return Card(
        title=title,
        detail=", ".join(each for each in parts if each) or "job",
        colour=COLOURS[VertexLabel.PIPELINE],
        kind="job",
    )
