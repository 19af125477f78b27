# SPDX-License-Identifier: Apache-2.0
"""
The rules of entries as one pass over their bytes, compiled by numba.

Guarantee: `EntryRules` accepts whatever this accepts, and both are then in the same state. The reverse does not hold:
text outside the plain case (see `entry`) is left to the rules, and so is every fault, because only they can name it.
A test compares the two.

How to read it: a function takes `data`, the bytes of a page, and `at`, where something must begin. It returns where
that ends, or -1 if it is not there; a negative `at` stays negative. So `skip(data, timestamp(data, at), _END)` means: a
time, then `"}`.

No loop runs beyond the bytes: a zero byte, which nothing here accepts, must follow the last entry, and each byte is
read only after the bytes before it were accepted. All compiled code and its tables are in this one file (see
`compiling.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ledger.verify.compiling import cached, compiled

SIZE, POSITION, OF, GROUPS = range(4)
"""Indices into `counters`: the log's size so far, position and size of its last group, groups begun in this page."""

TIME_BYTES: Final = 27
ID_AT, BRANCH_AT, ENTRY_BEFORE_BYTES = 27, 43, 44
"""Offsets in `entry_before`, what the last entry said: time as text, group id in binary, first letter of the branch."""

KEY, KEY_END, TYPE, TYPE_END, IS_FIRST, MEMBERS = range(6)
"""Indices into a row of `members`: where an entry's key and type begin and end, and whether it begins its group."""

INDEX, ENTRY, LEAF, KIND, NAME, CONTROL, GROUP = range(0, 14, 2)
SPANS: Final = 14
"""Indices into a row of `spans`: where a column begins (-1 for NULL); the next number says where it ends."""

LEVELS_MAX: Final = 32
ESCAPES: Final = b'"\\bfnrt'
NULL: Final = 0xFFFFFFFF
QUOTE, BACKSLASH, COMMA, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST, MINUS, ZERO, NINE, COLON, DOT, PLUS = b'"\\,{}[]-09:.+'

_ACTOR: Final = np.frombuffer(b'{"event":{"actor":"', dtype=np.uint8)
_SYSTEM: Final = np.frombuffer(b'system"', dtype=np.uint8)
_DATA: Final = np.frombuffer(b',"data":', dtype=np.uint8)
_KEY: Final = np.frombuffer(b',"key":"', dtype=np.uint8)
_OCCURRED: Final = np.frombuffer(b',"occurred_at":"', dtype=np.uint8)
_PARTS: Final = np.frombuffer(b'","parts":[', dtype=np.uint8)
_TYPE: Final = np.frombuffer(b',"type":"', dtype=np.uint8)
_VERSION: Final = np.frombuffer(b',"version":', dtype=np.uint8)
_BRANCH: Final = np.frombuffer(b'},"group":{"branch":"', dtype=np.uint8)
_THEN: Final = np.frombuffer(b'then","id":"', dtype=np.uint8)
_ELSE: Final = np.frombuffer(b'else","id":"', dtype=np.uint8)
_OF: Final = np.frombuffer(b'","of":', dtype=np.uint8)
_POSITION: Final = np.frombuffer(b',"position":', dtype=np.uint8)
_INDEX: Final = np.frombuffer(b'},"index":', dtype=np.uint8)
_LOG: Final = np.frombuffer(b',"log":"', dtype=np.uint8)
_PREVIOUS: Final = np.frombuffer(b'","previous":"', dtype=np.uint8)
_RECORDED: Final = np.frombuffer(b'","recorded_at":"', dtype=np.uint8)
_END: Final = np.frombuffer(b'"}', dtype=np.uint8)
_PART: Final = np.frombuffer(b'["', dtype=np.uint8)
_COMMITMENT: Final = np.frombuffer(b'","', dtype=np.uint8)
_PART_END: Final = np.frombuffer(b'"]', dtype=np.uint8)
_TRUE: Final = np.frombuffer(b"true", dtype=np.uint8)
_FALSE: Final = np.frombuffer(b"false", dtype=np.uint8)
_NULL: Final = np.frombuffer(b"null", dtype=np.uint8)
_ESCAPED: Final = np.frombuffer(b"u00", dtype=np.uint8)
_SHORT: Final = np.frombuffer(ESCAPES, dtype=np.uint8)
_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_PLAIN: Final = np.array([32 <= c < 127 and c not in b'"\\' for c in range(256)])
"""ASCII that JSON writes as it is."""
_VISIBLE: Final = _PLAIN & (np.arange(256) != 32)
_LETTER: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz" for c in range(256)])
_TYPE_BYTE: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz_" for c in range(256)])
_WORD: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz0123456789_" for c in range(256)])
_NIBBLE: Final = np.array([b"0123456789abcdef".find(c) for c in range(256)])
"""The value of a lower-case hex digit, -1 of any other byte."""
_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@cached
def bundle_spans(data: Any, size_bytes: int, spans: Any) -> int:
    """Write to `spans` where the entries of a bundle lie; return their number, -1 if too many or one is cut off."""
    at = found = 0
    while at < size_bytes:
        if found == len(spans) or at + 2 > size_bytes:
            return -1
        start = at + 2
        at = start + number(data, at, 2)
        if at > size_bytes:
            return -1
        spans[found, ENTRY], spans[found, ENTRY + 1] = start, at
        found += 1
    return found


@cached
def row_spans(data: Any, size_bytes: int, spans: Any) -> int:
    """
    Write to `spans` where the columns of rows lie; return the number of rows, -1 if too many, or one is cut or empty.

    `data` holds rows as PostgreSQL sends records: the number of columns, then type, length (all ones for NULL) and
    bytes of each column; numbers have 32 bits.
    """
    at = found = 0
    while at < size_bytes:
        if found == len(spans) or at + 4 > size_bytes or number(data, at, 4) != SPANS // 2:
            return -1
        at += 4
        for column in range(0, SPANS, 2):
            if at + 8 > size_bytes:
                return -1
            length = number(data, at + 4, 4)
            at += 8
            spans[found, column] = -1 if length == NULL else at
            at += 0 if length == NULL else length
            spans[found, column + 1] = at
            if at > size_bytes:
                return -1
        if spans[found, ENTRY] < 0:  # no entry, which could not be hashed
            return -1
        found += 1
    return found


@cached
def check_columns(data: Any, spans: Any, members: Any, leaves: Any, ids: Any, families: Any, first: int) -> int:
    """
    Return the position of the last control entry among the rows, -1 if there is none; -2 if a column is wrong.

    The columns must say what the entries do. Indices continue from `first`; `leaves` and `members` are those of
    `check_entries`, `ids` those of the groups that begin. `families` are the first words of control types, each padded
    with zeros.
    """
    group, control = 0, -1
    for i in range(len(spans)):
        row, own = spans[i], members[i]
        if width(row, INDEX) != 8 or number(data, row[INDEX], 8) != first + i:
            return -2
        if width(row, LEAF) != 32 or not equals(data, row[LEAF], leaves, 32 * (i + 1), 32):
            return -2
        if width(row, KIND) != width(own, TYPE) or not equals(data, row[KIND], data, own[TYPE], width(own, TYPE)):
            return -2
        if width(row, NAME) != width(own, KEY) or not equals(data, row[NAME], data, own[KEY], width(own, KEY)):
            return -2
        is_control = in_family(data, own[TYPE], own[TYPE_END], families)
        if width(row, CONTROL) != 1 or data[row[CONTROL]] != is_control:
            return -2
        if width(row, GROUP) != (16 if own[IS_FIRST] else -1):
            return -2
        if own[IS_FIRST]:
            if not equals(data, row[GROUP], ids, 16 * group, 16):
                return -2
            group += 1
        if is_control:
            control = i
    return control


@cached
def check_entries(
    data: Any, spans: Any, leaves: Any, origin: Any, counters: Any, entry_before: Any, ids: Any, firsts: Any,
    members: Any, stack: Any,
) -> int:  # fmt: skip
    """
    Return how many of the entries at `spans`, from the first on, keep rules 1 to 6 of `format/verification.py`.

    `leaves` are hashes of 32 bytes: of the entry before the first, then theirs. `counters` and `entry_before` describe
    what came before; they are updated to the last accepted entry. Output: `ids` and `firsts` (binary ids and first
    indices of groups that begin), and `members`. `stack` is scratch memory for `value`.
    """
    if not names_log(origin):
        return 0
    for i in range(len(spans)):
        if not entry(data, spans[i], leaves, 32 * i, origin, counters, entry_before, ids, firsts, members[i], stack):
            return i
    return len(spans)


@compiled
def entry(
    data: Any, span: Any, leaves: Any, leaf: int, origin: Any, counters: Any, entry_before: Any, ids: Any, firsts: Any,
    members: Any, stack: Any,
) -> bool:  # fmt: skip
    """
    Tell whether an entry keeps rules 1 to 6, in the plain case.

    Plain: no text outside `data` has an escape, numbers have at most 15 digits, `data` has at most 32 levels.
    """
    if width(span, ENTRY) > 65_535:
        return False
    at = actor(data, skip(data, span[ENTRY], _ACTOR))
    at = skip(data, at, _DATA)
    if at < 0 or data[at] != OPEN:
        return False
    at = skip(data, value(data, at, stack), _KEY)
    members[KEY] = at
    at = event_key(data, at)
    members[KEY_END] = at - 1
    at = skip(data, timestamp(data, skip(data, at, _OCCURRED)), _PARTS)
    at = skip(data, parts(data, at), _TYPE)
    members[TYPE] = at
    at = event_type(data, at)
    members[TYPE_END] = at - 1
    version, at = decimal(data, skip(data, at, _VERSION))
    at = skip(data, at, _BRANCH)
    if at < 0 or version < 1:
        return False
    branch, start = data[at], at
    at = skip(data, start, _THEN)
    if at < 0:
        at = skip(data, start, _ELSE)
    group_id = at
    of, at = decimal(data, skip(data, uuid(data, at, ids, 16 * counters[GROUPS]), _OF))
    position, at = decimal(data, skip(data, at, _POSITION))
    index, at = decimal(data, skip(data, at, _INDEX))
    at = skip(data, skip(data, at, _LOG), origin)
    at = skip(data, previous(data, skip(data, at, _PREVIOUS), leaves, leaf), _RECORDED)
    recorded_at = at
    at = skip(data, timestamp(data, at), _END)
    if at != span[ENTRY + 1] or index != counters[SIZE] or position >= of or of > 1024 or group_id < 0:
        return False
    if sorts_before(data, recorded_at, recorded_at + TIME_BYTES, entry_before, 0, TIME_BYTES):
        return False
    if not follows_group(branch, of, position, counters, entry_before, ids):
        return False
    if position == 0:
        firsts[counters[GROUPS]] = index
        counters[GROUPS] += 1
    members[IS_FIRST] = position == 0
    counters[POSITION] = position + 1
    counters[OF] = of
    counters[SIZE] += 1
    for i in range(TIME_BYTES):
        entry_before[i] = data[recorded_at + i]
    return True


@compiled
def follows_group(branch: int, of: int, position: int, counters: Any, entry_before: Any, ids: Any) -> bool:
    """Tell whether an entry continues the group of the entry before, or begins one; its id is the last in `ids`."""
    at = 16 * counters[GROUPS]
    if counters[POSITION] < counters[OF]:
        is_next = position == counters[POSITION] and of == counters[OF] and branch == entry_before[BRANCH_AT]
        return is_next and equals(ids, at, entry_before, ID_AT, 16)
    for i in range(16):
        entry_before[ID_AT + i] = ids[at + i]
    entry_before[BRANCH_AT] = branch
    return position == 0


@compiled
def value(data: Any, at: int, stack: Any) -> Any:
    """Return where the canonical JSON value at `at` ends, -1 if there is none."""
    level = 0
    while True:
        byte = data[at]
        if byte == OPEN and data[at + 1] != CLOSE:
            if level == LEVELS_MAX:
                return -1
            stack[level, 0] = -1  # no member yet
            at = member(data, at + 1, stack[level])
            if at < 0:
                return -1
            level += 1
            continue
        if byte == OPEN_LIST and data[at + 1] != CLOSE_LIST:
            if level == LEVELS_MAX:
                return -1
            stack[level, 0] = -2  # a list
            level += 1
            at += 1
            continue
        at = at + 2 if byte in (OPEN, OPEN_LIST) else leaf_value(data, at)
        while True:
            if at < 0 or level == 0:
                return at
            byte = data[at]
            is_list = stack[level - 1, 0] == -2
            if byte == COMMA:
                at = at + 1 if is_list else member(data, at + 1, stack[level - 1])
                if at < 0:
                    return -1
                break
            if byte != (CLOSE_LIST if is_list else CLOSE):
                return -1
            at += 1
            level -= 1


@compiled
def member(data: Any, at: int, last: Any) -> Any:
    """Return where the value after a member's name begins; `last` says where the name before it lies, -1 if none."""
    if data[at] != QUOTE:
        return -1
    start = end = at + 1
    while _PLAIN[data[end]]:
        end += 1
    if data[end] != QUOTE or data[end + 1] != COLON:
        return -1
    if last[0] >= 0 and not sorts_before(data, last[0], last[1], data, start, end):
        return -1
    last[0], last[1] = start, end
    return end + 2


@compiled
def leaf_value(data: Any, at: int) -> Any:
    """Return where a string, an integer, true, false or null ends."""
    byte = data[at]
    if byte == QUOTE:
        return any_text(data, at + 1)
    if byte == MINUS:
        found, end = decimal(data, at + 1)
        return end if found > 0 else -1
    if ZERO <= byte <= NINE:
        found, end = decimal(data, at)
        return end
    if byte == _TRUE[0]:
        return skip(data, at, _TRUE)
    if byte == _FALSE[0]:
        return skip(data, at, _FALSE)
    return skip(data, at, _NULL)


@compiled
def any_text(data: Any, at: int) -> int:
    """Return where a string ends, its quote included: UTF-8, escaped exactly as in RFC 8785."""
    while True:
        while _PLAIN[data[at]]:
            at += 1
        byte = data[at]
        if byte == QUOTE:
            return at + 1
        if byte == 127:
            at += 1
        elif byte == BACKSLASH:
            at = escape(data, at + 1)
        elif byte >= 128:
            at = character(data, at)
        else:
            return -1
        if at < 0:
            return -1


@compiled
def escape(data: Any, at: int) -> Any:
    """Return where an escape ends; its backslash is before `at`."""
    for short in _SHORT:
        if data[at] == short:
            return at + 1
    at = skip(data, at, _ESCAPED)
    if at < 0 or not (data[at] == ZERO or data[at] == ZERO + 1) or _NIBBLE[data[at + 1]] < 0:
        return -1
    code = 16 * _NIBBLE[data[at]] + _NIBBLE[data[at + 1]]
    if code in (8, 9, 10, 12, 13):  # these have a short form
        return -1
    return at + 2


@compiled
def character(data: Any, at: int) -> int:
    """Return where a character of two to four bytes of UTF-8 ends (RFC 3629, section 4)."""
    byte = data[at]
    low, high = 0x80, 0xBF
    if 0xC2 <= byte <= 0xDF:
        rest = 1
    elif 0xE0 <= byte <= 0xEF:
        rest = 2
        if byte == 0xE0:
            low = 0xA0
        elif byte == 0xED:  # surrogates
            high = 0x9F
    elif 0xF0 <= byte <= 0xF4:
        rest = 3
        if byte == 0xF0:
            low = 0x90
        elif byte == 0xF4:
            high = 0x8F
    else:
        return -1
    for i in range(1, rest + 1):
        if not low <= data[at + i] <= high:
            return -1
        low, high = 0x80, 0xBF
    return at + rest + 1


@compiled
def parts(data: Any, at: int) -> int:
    """Return where the list of parts ends; its opening bracket is before `at`. Names are sorted, each with a hash."""
    if at < 0:
        return -1
    if data[at] == CLOSE_LIST:
        return at + 1
    last = last_end = -1
    while True:
        start = skip(data, at, _PART)
        end = word(data, start)
        at = skip(data, hash_text(data, skip(data, end, _COMMITMENT)), _PART_END)
        if at < 0 or (last >= 0 and not sorts_before(data, last, last_end, data, start, end)):
            return -1
        if data[at] == CLOSE_LIST:
            return at + 1
        if data[at] != COMMA:
            return -1
        last, last_end = start, end
        at += 1


@compiled
def word(data: Any, at: int) -> int:
    """Return where the name of a part ends: a letter, and up to 62 lower-case letters, digits and underscores."""
    if at < 0 or not _LETTER[data[at]]:
        return -1
    start = at
    while _WORD[data[at]]:
        at += 1
    return at if at - start <= 63 else -1


@compiled
def hash_text(data: Any, at: int) -> int:
    """Return where 64 hex digits end."""
    if at < 0:
        return -1
    for i in range(64):
        if _NIBBLE[data[at + i]] < 0:
            return -1
    return at + 64


@compiled
def actor(data: Any, at: int) -> int:
    """Return where an actor ends, its quote included: 32 hex digits, or `system`."""
    if at < 0:
        return -1
    end = skip(data, at, _SYSTEM)
    if end >= 0:
        return end
    for i in range(32):
        if _NIBBLE[data[at + i]] < 0:
            return -1
    return at + 33 if data[at + 32] == QUOTE else -1


@compiled
def event_key(data: Any, at: int) -> int:
    """Return where an event key ends, its quote included: 1 to 2,000 visible ASCII characters without escapes."""
    if at < 0:
        return -1
    start = at
    while _VISIBLE[data[at]]:
        at += 1
    return at + 1 if data[at] == QUOTE and 0 < at - start <= 2_000 else -1


@compiled
def event_type(data: Any, at: int) -> int:
    """Return where an event's type ends, its quote included: two words of lower-case letters and underscores."""
    if at < 0:
        return -1
    for last in (DOT, QUOTE):
        if not _LETTER[data[at]]:
            return -1
        while _TYPE_BYTE[data[at]]:
            at += 1
        if data[at] != last:
            return -1
        at += 1
    return at


@compiled
def names_log(origin: Any) -> bool:
    """Tell whether this is an origin: 1 to 255 visible ASCII characters, without plus and without escapes."""
    for byte in origin:
        if not _VISIBLE[byte] or byte == PLUS:
            return False
    return 0 < len(origin) <= 255


@compiled
def decimal(data: Any, at: int) -> Any:
    """Return a number of 1 to 15 digits, without leading zeros, and where it ends; -1 if there is none."""
    if at < 0:
        return np.int64(-1), np.int64(-1)
    start, found = at, np.int64(0)
    while ZERO <= data[at] <= NINE and at - start < 16:
        found = 10 * found + data[at] - ZERO
        at += 1
    digits = at - start
    if not 0 < digits < 16 or (digits > 1 and data[start] == ZERO):
        return np.int64(-1), np.int64(-1)
    return found, np.int64(at)


@compiled
def timestamp(data: Any, at: int) -> int:
    """Return where a time ends, without its quote: `YYYY-MM-DDTHH:MM:SS.ffffffZ`, of a day that exists."""
    if at < 0:
        return -1
    for i in range(TIME_BYTES):
        byte = data[at + i]
        if i in (4, 7):
            good = byte == MINUS
        elif i == 10:
            good = byte == 84  # T
        elif i in (13, 16):
            good = byte == COLON
        elif i == 19:
            good = byte == 46  # .
        elif i == 26:
            good = byte == 90  # Z
        else:
            good = ZERO <= byte <= NINE
        if not good:
            return -1
    year = 100 * two(data, at) + two(data, at + 2)
    month, day = two(data, at + 5), two(data, at + 8)
    if year < 1 or not 1 <= month <= 12:
        return -1
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 29 if month == 2 and is_leap else _DAYS[month]
    if not 1 <= day <= days or two(data, at + 11) > 23 or two(data, at + 14) > 59 or two(data, at + 17) > 59:
        return -1
    return at + TIME_BYTES


@compiled
def two(data: Any, at: int) -> Any:
    """Return a number of two digits."""
    return np.int64(10) * (data[at] - ZERO) + (data[at + 1] - ZERO)


@compiled
def uuid(data: Any, at: int, ids: Any, to: int) -> int:
    """Return where a UUID ends, and write it in binary to `ids` at `to`."""
    if at < 0:
        return -1
    for i in range(16):
        if i in (4, 6, 8, 10):
            if data[at] != MINUS:
                return -1
            at += 1
        high = _NIBBLE[data[at]]
        if high < 0:
            return -1
        low = _NIBBLE[data[at + 1]]
        if low < 0:
            return -1
        ids[to + i] = 16 * high + low
        at += 2
    return at


@compiled
def previous(data: Any, at: int, leaves: Any, leaf: int) -> int:
    """Return where the leaf hash of the entry before ends, in hex digits."""
    if at < 0:
        return -1
    for i in range(32):
        byte = leaves[leaf + i]
        if data[at] != _HEX_DIGITS[byte >> 4] or data[at + 1] != _HEX_DIGITS[byte & 15]:
            return -1
        at += 2
    return at


@compiled
def skip(data: Any, at: int, literal: Any) -> int:
    """Return where `literal`, which must begin at `at`, ends; -1 if it does not, or `at` is negative."""
    if at < 0:
        return -1
    for i in range(len(literal)):
        if data[at + i] != literal[i]:
            return -1
    return at + len(literal)


@compiled
def sorts_before(one: Any, at: int, end: int, other: Any, other_at: int, other_end: int) -> Any:
    """Tell whether the first bytes sort before the second."""
    while at < end and other_at < other_end:
        if one[at] != other[other_at]:
            return one[at] < other[other_at]
        at += 1
        other_at += 1
    return other_at < other_end


@compiled
def equals(one: Any, at: int, other: Any, other_at: int, length: int) -> bool:
    """Tell whether `length` bytes are equal."""
    for i in range(length):  # noqa: SIM110 - numba compiles no generators
        if one[at + i] != other[other_at + i]:
            return False
    return True


@compiled
def width(row: Any, place: int) -> int:
    """Return the length of a span of a row in bytes, -1 for NULL."""
    return row[place + 1] - row[place] if row[place] >= 0 else -1


@compiled
def in_family(data: Any, at: int, end: int, families: Any) -> bool:
    """Tell whether the first word of a type, before its dot, is one of `families`."""
    for family in families:
        i = 0
        while family[i] and at + i < end and data[at + i] == family[i]:
            i += 1
        if not family[i] and (at + i == end or data[at + i] == 46):
            return True
    return False


@compiled
def number(data: Any, at: int, width: int) -> Any:
    """Return a big-endian number of `width` bytes."""
    found = np.int64(0)
    for i in range(width):
        found = (found << 8) | data[at + i]
    return found
