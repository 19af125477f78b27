# SPDX-License-Identifier: Apache-2.0
"""By when a stamped note existed: the authority's time with its fraction and its accuracy, never a moment too early."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.anchoring import Pinned, WitnessKind, judge_witnessing, stamped_note
from ledger.anchoring.stamping import CLOCK_TOLERANCE, Authority, open_response
from ledger.anchoring.timestamp import ACCURACY_MAX, check_stamp, latest_time
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from testkit.ledger.der import INTEGER, NULL, PLAIN_0, PLAIN_1, SEQUENCE, Value, der, der_integer
from testkit.ledger.stamps import NONCE, NOON, NOTE, Forgery, good
from testkit.ledger.witnesses import GENUINE, LOG, ORIGIN

ROOTS = [good().root.certificate]


def accuracy(seconds: int | None = None, millis: int | None = None, micros: int | None = None) -> Value:
    parts = zip((INTEGER, PLAIN_0, PLAIN_1), (seconds, millis, micros), strict=True)
    return der(SEQUENCE, [Value(tag=tag, content=der_integer(n).content) for tag, n in parts if n is not None])


def late_s(fraction: str, said: Value | None) -> float:
    """Return how much later than the whole second of its time a stamp is taken to be."""
    forgery = replace(good(), fraction=fraction, accuracy=said)
    stamp = check_stamp(forgery.token(), NOTE, roots=ROOTS)
    assert stamp.gen_time == NOON
    return (stamp.not_later_than - NOON).total_seconds()


@pytest.mark.parametrize(
    ("fraction", "said", "seconds"),
    [
        ("", None, 0),
        (".9", None, 1),
        (".000000001", None, 1),
        ("", accuracy(1), 1),
        ("", accuracy(), 0),
        ("", accuracy(0), 0),
        ("", accuracy(millis=500), 1),
        ("", accuracy(micros=1), 1),
        (".5", accuracy(millis=500), 1),
        (".5", accuracy(millis=500, micros=1), 2),
        (".999999999", accuracy(59, 999, 999), 61),
        ("", accuracy(3600), 3600),
    ],
)
def test_fraction_and_accuracy_make_it_later_and_it_is_rounded_up(
    fraction: str, said: Value | None, seconds: int
) -> None:
    assert late_s(fraction, said) == seconds


def content(forgery: Forgery) -> bytes:
    return forgery._content()


@given(
    st.integers(0, 10**9 - 1), st.integers(0, 3000), st.none() | st.integers(1, 999), st.none() | st.integers(1, 999)
)
def test_it_is_less_than_a_second_later_than_what_was_said(
    fraction_ns: int, seconds: int, millis: int | None, micros: int | None
) -> None:
    fraction = f".{fraction_ns:09}".rstrip("0").rstrip(".")
    forgery = replace(good(), fraction=fraction, accuracy=accuracy(seconds, millis, micros))
    late_ns = (latest_time(content(forgery), NOON) - NOON) // timedelta(seconds=1) * 10**9
    assert 0 <= late_ns - (fraction_ns + seconds * 10**9 + (millis or 0) * 10**6 + (micros or 0) * 1000) < 10**9


@pytest.mark.parametrize("fraction", [".0", ".50", ".", ",5", ".5.5", "+0100", ".0000000001", ".x", ".\u0665"])
def test_a_time_of_another_form_is_refused(fraction: str) -> None:
    with pytest.raises(LedgerError):
        late_s(fraction, None)
    with pytest.raises(FormatError):
        latest_time(content(replace(good(), fraction=fraction)), NOON)


@pytest.mark.parametrize(
    "said",
    [
        accuracy(-1),
        accuracy(millis=0),
        accuracy(millis=1000),
        accuracy(micros=-1),
        accuracy(micros=1000),
        der(SEQUENCE, [Value(tag=PLAIN_0, content=b"\2"), der_integer(1)]),
        der(SEQUENCE, [der_integer(1), der_integer(1)]),
        der(SEQUENCE, [Value(tag=NULL, content=b"")]),
        der(SEQUENCE, [Value(tag=INTEGER, content=b"\0\1")]),
        der(SEQUENCE, [Value(tag=PLAIN_0, content=b"")]),
    ],
)
def test_an_accuracy_of_another_form_is_refused(said: Value) -> None:
    with pytest.raises(LedgerError):
        late_s("", said)
    with pytest.raises(FormatError):
        latest_time(content(replace(good(), accuracy=said)), NOON)


@pytest.mark.parametrize("said", [accuracy(3600, micros=1), accuracy(10**6), accuracy(10**40)])
def test_a_stamp_that_leaves_the_time_open_is_refused(said: Value) -> None:
    assert timedelta(hours=1) == ACCURACY_MAX
    with pytest.raises(LedgerError):
        late_s("", said)
    with pytest.raises(BrokenError, match="accuracy of at most") as caught:
        latest_time(content(replace(good(), accuracy=said)), NOON)
    assert caught.value.fault is Fault.STAMP


def test_an_authority_whose_time_may_lie_far_behind_ours_is_not_taken() -> None:
    authority = Authority(url="", roots=ROOTS)
    for seconds in (300, 301):
        response = replace(good(), accuracy=accuracy(seconds)).response()
        if timedelta(seconds=seconds) <= CLOCK_TOLERANCE:
            assert open_response(response, NOTE, authority, nonce=NONCE, now=NOON)[1].gen_time == NOON
            continue
        with pytest.raises(BrokenError, match="set the clock"):
            open_response(response, NOTE, authority, nonce=NONCE, now=NOON)


def test_what_is_anchored_is_dated_by_the_later_time() -> None:
    note = GENUINE.note(8)

    def dated(forgery: Forgery) -> datetime | None:
        token = replace(forgery, note=stamped_note(note)).token()
        pinned = Pinned(stamp_roots=ROOTS)
        judged = judge_witnessing(note, origin=ORIGIN, anchors=(), keys=[LOG.verifier_key], pinned=pinned, token=token)
        assert judged.kinds == (WitnessKind.STAMPED,)
        return judged.time

    assert dated(good()) == NOON
    assert dated(replace(good(), fraction=".9", accuracy=accuracy(1))) == NOON + timedelta(seconds=2)
