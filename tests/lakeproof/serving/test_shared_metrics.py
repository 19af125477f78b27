# SPDX-License-Identifier: Apache-2.0
"""The metrics of several processes are those of one: sums, which do not fall when a process ends."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lakeproof.serving.shared_metrics import RESTARTS, TEXT_BYTES_MAX, SharedMetrics, sum_metrics

ONE, TWO = "gateway-1", "gateway-2"


class Measured:
    """The metrics of one process: a counter, a gauge and a histogram."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.answers = Counter("answers_total", 'What was "answered".', ["status"], registry=self._registry)
        self.open = Gauge("open", "What is open.", registry=self._registry)
        self.took = Histogram("took_seconds", "How long it took.", buckets=(0.1, 1.0), registry=self._registry)

    def text(self) -> str:
        return generate_latest(self._registry).decode()


def value(text: str, sample: str) -> float:
    """Return the value of one sample, which must be there once."""
    (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return float(found)


@pytest.fixture
def measured() -> tuple[Measured, Measured]:
    """The metrics of two processes that have done something."""
    one, two = Measured(), Measured()
    one.answers.labels(status="200").inc(3)
    two.answers.labels(status="200").inc(4)
    two.answers.labels(status='odd "\n\\ one').inc()
    one.open.set(5)
    two.open.set(6)
    one.took.observe(0.05)
    two.took.observe(0.5)
    return one, two


def started(*names: str) -> SharedMetrics:
    shared = SharedMetrics(names)
    for name in names:
        shared.started(name)
    return shared


def test_a_sum_of_one_text_is_that_text(measured: tuple[Measured, Measured]) -> None:
    text = measured[1].text()
    assert sorted(sum_metrics([text]).splitlines()) == sorted(text.splitlines())


def test_counters_gauges_and_histograms_are_summed(measured: tuple[Measured, Measured]) -> None:
    one, two = measured
    shared = started(ONE, TWO)
    shared.publish(TWO, two.text())
    text = shared.collect(ONE, one.text())
    assert value(text, 'answers_total{status="200"}') == 7
    assert value(text, r'answers_total{status="odd \"\n\\ one"}') == 1
    assert value(text, "open") == 11
    assert value(text, 'took_seconds_bucket{le="0.1"}') == 1
    assert value(text, 'took_seconds_bucket{le="+Inf"}') == 2
    assert value(text, "took_seconds_sum") == pytest.approx(0.55)
    assert text.count("# TYPE answers_total counter") == 1
    created = min(value(each.text(), 'answers_created{status="200"}') for each in (one, two))
    assert value(text, 'answers_created{status="200"}') == created
    assert sum_metrics([shared.collect(TWO, two.text())]) == shared.collect(TWO, two.text())


def test_what_a_process_has_counted_stays_when_it_has_ended(measured: tuple[Measured, Measured]) -> None:
    one, two = measured
    shared = started(ONE, TWO)
    shared.publish(TWO, two.text())
    before = shared.collect(ONE, one.text())
    for _ in range(3):
        shared.ended(TWO)
        assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 7
        assert value(shared.collect(ONE, one.text()), "open") == 5, "a gauge ends with its process"
        shared.started(TWO)
        assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 7
    again = Measured()
    again.answers.labels(status="200").inc()
    text = shared.collect(TWO, again.text())
    assert value(text, 'answers_total{status="200"}') == 4 + 1 + 3
    assert value(text, 'took_seconds_bucket{le="+Inf"}') == value(before, 'took_seconds_bucket{le="+Inf"}')


def test_who_is_asked_and_dies_has_shown_others_what_it_answered(measured: tuple[Measured, Measured]) -> None:
    one, two = measured
    shared = started(ONE, TWO)
    answered = shared.collect(TWO, two.text())
    shared.ended(TWO)
    assert value(answered, 'answers_total{status="200"}') == 4
    assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 7


def test_restarts_are_counted_by_process(measured: tuple[Measured, Measured]) -> None:
    shared = started(ONE, TWO)
    shared.ended(TWO)
    shared.started(TWO)
    text = shared.collect(ONE, measured[0].text())
    assert value(text, f'{RESTARTS}{{process="{ONE}"}}') == 0
    assert value(text, f'{RESTARTS}{{process="{TWO}"}}') == 1


def test_what_was_published_last_stays_if_the_next_is_cut_off(measured: tuple[Measured, Measured]) -> None:
    one, two = measured
    shared = started(ONE, TWO)
    shared.publish(TWO, two.text())
    two.answers.labels(status="200").inc()
    shared.publish(TWO, two.text())
    newest = max(shared._buffers(TWO))
    shared._memory[newest[1] + 100] ^= 1
    assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 3 + 4
    shared.publish(TWO, two.text())
    assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 3 + 5


def test_a_text_that_is_too_long_is_not_published(measured: tuple[Measured, Measured]) -> None:
    one, two = measured
    shared = started(ONE, TWO)
    shared.publish(TWO, two.text())
    shared.publish(TWO, f"# {TEXT_BYTES_MAX * 'x'}\n")
    assert value(shared.collect(ONE, one.text()), 'answers_total{status="200"}') == 7
