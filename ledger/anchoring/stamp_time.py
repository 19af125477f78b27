"""
By when a stamped note existed: what a TSTInfo says of its time, read to the end (RFC 3161, section 2.4.2).

Guarantee: `latest_time` is never earlier than the authority may have meant. Its time has a fraction of a second, which
parsers drop, and an accuracy, by which the true time may be later: without both, "not later than" would say too much.
An authority may state its accuracy elsewhere, in its policy; what the stamp does not hold is not added here.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from ledger.anchoring.der import GENERALIZED_TIME, INTEGER, PLAIN_0, PLAIN_1, SEQUENCE, Value, parse_der
from ledger.errors import BrokenError, Fault, FormatError

ACCURACY_MAX: Final = timedelta(hours=1)
"""Of a second or better, say the rules for authorities (RFC 3628, section 4.3); beyond this the time is left open."""

_GEN_TIME: Final = re.compile(rb"[0-9]{14}(?:\.([0-9]{0,8}[1-9]))?Z")
"""To the nanosecond. Zeros at the end and a point alone are not DER (RFC 3161, section 2.4.2)."""

_GEN_TIME_AT: Final = 4
_DIGITS: Final = 9
_SECOND_NS: Final = 10**9
_UNITS_NS: Final = {INTEGER: _SECOND_NS, PLAIN_0: 10**6, PLAIN_1: 10**3}
_PARTS_MAX: Final = 999  # of thousandths and of millionths


def latest_time(content: bytes, gen_time: datetime) -> datetime:
    """
    Return the time by which a note existed that the TSTInfo `content` stamps, rounded up to a whole second.

    `gen_time` is the time in it, to the second.

    Raises:
        FormatError: if time or accuracy is not of its form.
        BrokenError: (`Fault.STAMP`) if the accuracy is over `ACCURACY_MAX`.
        OverflowError: if that is behind the year 9999.
    """
    members = parse_der(content, "TSTInfo").members(SEQUENCE, "TSTInfo")
    times, accuracies = members[_GEN_TIME_AT : _GEN_TIME_AT + 1], members[_GEN_TIME_AT + 1 : _GEN_TIME_AT + 2]
    if not times:
        raise FormatError("TSTInfo", expected="a time", found=content)
    late_ns = _fraction_ns(times[0])
    if accuracies and accuracies[0].tag == SEQUENCE:  # else it is left out, and this is what follows it
        late_ns += _accuracy_ns(accuracies[0])
    return gen_time + timedelta(seconds=-(-late_ns // _SECOND_NS))


def _fraction_ns(time: Value) -> int:
    text = time.bytes_of(GENERALIZED_TIME, "time of a stamp")
    found = _GEN_TIME.fullmatch(text)
    if found is None:
        raise FormatError("time of a stamp", expected="YYYYMMDDhhmmss[.s…]Z, without zeros at the end", found=text)
    return int((found[1] or b"").ljust(_DIGITS, b"0"))


def _accuracy_ns(accuracy: Value) -> int:
    parts = accuracy.members(SEQUENCE, "accuracy of a stamp")
    tags = [part.tag for part in parts]
    if tags != sorted(set(tags) & _UNITS_NS.keys()):
        raise FormatError("accuracy of a stamp", expected="seconds, millis and micros, each once", found=tags)
    total_ns = 0
    for part in parts:
        number = Value(tag=INTEGER, content=part.content).number("accuracy of a stamp")
        if number < 0 or (part.tag != INTEGER and not 1 <= number <= _PARTS_MAX):
            raise FormatError("accuracy of a stamp", expected="seconds from 0, others from 1 to 999", found=number)
        total_ns += number * _UNITS_NS[part.tag]
    if total_ns > ACCURACY_MAX // timedelta(seconds=1) * _SECOND_NS:
        expected = f"an accuracy of at most {ACCURACY_MAX}"
        raise BrokenError(Fault.STAMP, where="time stamp", expected=expected, found=f"{total_ns} ns")
    return total_ns
