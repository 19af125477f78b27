"""
The rules of the entries as one pass over their bytes, compiled by numba: what is accepted here needs no other look.

Guarantee: whatever this accepts, `rules.EntryRules` accepts, and both then know the same of what comes next. The
reverse does not hold: text outside the plain case (see `entry`) is left to the rules, and so is every fault, since they
can name it. A test holds the two against each other.

No loop runs beyond the bytes: a zero byte, which nothing here accepts, must follow the last entry, and each byte is
looked at only behind bytes that were accepted. All that is compiled stands in this one file, and its tables with it
(see `ledger/verify/compiling.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ledger.verify.compiling import compiled, kept

SIZE, POSITION, OF, GROUPS = range(4)
"""Places in `numbers`: of the log so far, and the groups that were begun."""

TIME_BYTES: Final = 27
ID_AT, BRANCH_AT, CARRIED_BYTES = 27, 43, 44
"""Places in `carried`: what the entry before said. Time as text, group id in binary, first letter of the branch."""

KEY, KEY_END, TYPE, TYPE_END, IS_FIRST, MEMBERS = range(6)
"""Places in a row of `members`: where an entry's key and type lie, and whether it begins its group."""

INDEX, ENTRY, LEAF, KIND, NAME, CONTROL, GROUP = range(0, 14, 2)
SPANS: Final = 14
"""Places in a row of `spans`: where a column begins, -1 for NULL, and in the next place where it ends."""

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
"""ASCII that JSON spells as itself."""
_VISIBLE: Final = _PLAIN & (np.arange(256) != 32)
_LETTER: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz" for c in range(256)])
_TYPE_BYTE: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz_" for c in range(256)])
_WORD: Final = np.array([c in b"abcdefghijklmnopqrstuvwxyz0123456789_" for c in range(256)])
_NIBBLE: Final = np.array([b"0123456789abcdef".find(c) for c in range(256)])
"""The value of a lower-case hex digit, -1 of any other byte."""
_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@kept
def bundle_spans(data: Any, size_bytes: int, spans: Any) -> int:
    """Note where the entries of a bundle lie; returns how many there are, -1 if they are too many or one is cut."""
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


@kept
def row_spans(data: Any, size_bytes: int, spans: Any) -> int:
    """
    Note where the columns of rows lie; returns how many rows there are, -1 if too many, or one is cut or has no entry.

    `data` is rows as PostgreSQL sends records, in numbers of 32 bits: how many columns, then type, length (all ones for
    NULL) and bytes of each.
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


@kept
def check_columns(data: Any, spans: Any, members: Any, leaves: Any, ids: Any, families: Any, first: int) -> int:
    """
    Return the place among the rows of the last control entry, -1 if there is none; -2 if a column is not as it must be.

    The columns must say what the entries do: indices go on from `first`, `leaves` and `members` are those of
    `check_entries`, `ids` those of the groups that begin. `families` are the first words of the control types, each
    filled up with zeros.
    """
    group, control = 0, -1
    for i in range(len(spans)):
        row, said = spans[i], members[i]
        if width(row, INDEX) != 8 or number(data, row[INDEX], 8) != first + i:
            return -2
        if width(row, LEAF) != 32 or not same(data, row[LEAF], leaves, 32 * (i + 1), 32):
            return -2
        if width(row, KIND) != width(said, TYPE) or not same(data, row[KIND], data, said[TYPE], width(said, TYPE)):
            return -2
        if width(row, NAME) != width(said, KEY) or not same(data, row[NAME], data, said[KEY], width(said, KEY)):
            return -2
        is_control = in_family(data, said[TYPE], said[TYPE_END], families)
        if width(row, CONTROL) != 1 or data[row[CONTROL]] != is_control:
            return -2
        if width(row, GROUP) != (16 if said[IS_FIRST] else -1):
            return -2
        if said[IS_FIRST]:
            if not same(data, row[GROUP], ids, 16 * group, 16):
                return -2
            group += 1
        if is_control:
            control = i
    return control


@kept
def check_entries(
    data: Any, spans: Any, leaves: Any, origin: Any, numbers: Any, carried: Any, ids: Any, firsts: Any, members: Any,
    stack: Any,
) -> int:  # fmt: skip
    """
    Return how many of the entries at `spans`, from the first on, keep rules 1 to 6 of `format/verification.py`.

    `leaves` are hashes of 32 bytes: of the entry before the first, then theirs. `numbers` and `carried` say what came
    before, and are brought up to the last entry that was accepted. Filled in: `ids` and `firsts` (ids in binary and
    indices of groups that begin) and `members`. `stack` is room to work in.
    """
    if not names_log(origin):
        return 0
    for i in range(len(spans)):
        if not entry(data, spans[i], leaves, 32 * i, origin, numbers, carried, ids, firsts, members[i], stack):
            return i
    return len(spans)


@compiled
def entry(
    data: Any, span: Any, leaves: Any, leaf: int, origin: Any, numbers: Any, carried: Any, ids: Any, firsts: Any,
    members: Any, stack: Any,
) -> bool:  # fmt: skip
    """
    Tell whether one entry keeps rules 1 to 6, if it is of the plain case.

    Plain: outside `data` no text has an escape, numbers have at most 15 digits, and `data` is nested at most 32 levels.
    """
    if width(span, ENTRY) > 65_535:
        return False
    at = actor(data, behind(data, span[ENTRY], _ACTOR))
    at = behind(data, at, _DATA)
    if at < 0 or data[at] != OPEN:
        return False
    at = behind(data, value(data, at, stack), _KEY)
    members[KEY] = at
    at = event_key(data, at)
    members[KEY_END] = at - 1
    at = behind(data, timestamp(data, behind(data, at, _OCCURRED)), _PARTS)
    at = behind(data, parts(data, at), _TYPE)
    members[TYPE] = at
    at = event_type(data, at)
    members[TYPE_END] = at - 1
    version, at = decimal(data, behind(data, at, _VERSION))
    at = behind(data, at, _BRANCH)
    if at < 0 or version < 1:
        return False
    branch, start = data[at], at
    at = behind(data, start, _THEN)
    if at < 0:
        at = behind(data, start, _ELSE)
    group_id = at
    of, at = decimal(data, behind(data, uuid(data, at, ids, 16 * numbers[GROUPS]), _OF))
    position, at = decimal(data, behind(data, at, _POSITION))
    index, at = decimal(data, behind(data, at, _INDEX))
    at = behind(data, behind(data, at, _LOG), origin)
    at = behind(data, previous(data, behind(data, at, _PREVIOUS), leaves, leaf), _RECORDED)
    recorded_at = at
    at = behind(data, timestamp(data, at), _END)
    if at != span[ENTRY + 1] or index != numbers[SIZE] or position >= of or of > 1024 or group_id < 0:
        return False
    if before(data, recorded_at, recorded_at + TIME_BYTES, carried, 0, TIME_BYTES):
        return False
    if not follows_group(branch, of, position, numbers, carried, ids):
        return False
    if position == 0:
        firsts[numbers[GROUPS]] = index
        numbers[GROUPS] += 1
    members[IS_FIRST] = position == 0
    numbers[POSITION] = position + 1
    numbers[OF] = of
    numbers[SIZE] += 1
    for i in range(TIME_BYTES):
        carried[i] = data[recorded_at + i]
    return True


@compiled
def follows_group(branch: int, of: int, position: int, numbers: Any, carried: Any, ids: Any) -> bool:
    """Tell whether an entry goes on with the group before it, or begins one; its id is the last in `ids`."""
    at = 16 * numbers[GROUPS]
    if numbers[POSITION] < numbers[OF]:
        goes_on = position == numbers[POSITION] and of == numbers[OF] and branch == carried[BRANCH_AT]
        return goes_on and same(ids, at, carried, ID_AT, 16)
    for i in range(16):
        carried[ID_AT + i] = ids[at + i]
    carried[BRANCH_AT] = branch
    return position == 0


@compiled
def value(data: Any, at: int, stack: Any) -> Any:
    """Return where the canonical JSON value that begins at `at` ends, -1 if there is none."""
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
    """Return where the value behind a member's name begins; `last` is where the name before it lies, -1 if none."""
    if data[at] != QUOTE:
        return -1
    start = end = at + 1
    while _PLAIN[data[end]]:
        end += 1
    if data[end] != QUOTE or data[end + 1] != COLON:
        return -1
    if last[0] >= 0 and not before(data, last[0], last[1], data, start, end):
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
        return behind(data, at, _TRUE)
    if byte == _FALSE[0]:
        return behind(data, at, _FALSE)
    return behind(data, at, _NULL)


@compiled
def any_text(data: Any, at: int) -> int:
    """Return the end of a string, behind its quote: UTF-8, escaped as RFC 8785 does it and not otherwise."""
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
    """Return where what follows a backslash ends."""
    for short in _SHORT:
        if data[at] == short:
            return at + 1
    at = behind(data, at, _ESCAPED)
    if at < 0 or not (data[at] == ZERO or data[at] == ZERO + 1) or _NIBBLE[data[at + 1]] < 0:
        return -1
    code = 16 * _NIBBLE[data[at]] + _NIBBLE[data[at + 1]]
    if code in (8, 9, 10, 12, 13):  # which have a short form
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
    """Return where the list of parts ends, behind its opening bracket: names sorted, each with a hash."""
    if at < 0:
        return -1
    if data[at] == CLOSE_LIST:
        return at + 1
    last = last_end = -1
    while True:
        start = behind(data, at, _PART)
        end = word(data, start)
        at = behind(data, hash_text(data, behind(data, end, _COMMITMENT)), _PART_END)
        if at < 0 or (last >= 0 and not before(data, last, last_end, data, start, end)):
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
    """Return the end of an actor, behind its quote: 32 hex digits, or `system`."""
    if at < 0:
        return -1
    end = behind(data, at, _SYSTEM)
    if end >= 0:
        return end
    for i in range(32):
        if _NIBBLE[data[at + i]] < 0:
            return -1
    return at + 33 if data[at + 32] == QUOTE else -1


@compiled
def event_key(data: Any, at: int) -> int:
    """Return the end of an event key, behind its quote: 1 to 2,000 visible ASCII characters, none of them escaped."""
    if at < 0:
        return -1
    start = at
    while _VISIBLE[data[at]]:
        at += 1
    return at + 1 if data[at] == QUOTE and 0 < at - start <= 2_000 else -1


@compiled
def event_type(data: Any, at: int) -> int:
    """Return the end of an event's type, behind its quote: two words of lower-case letters and underscores."""
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
    """Tell whether a log can have this origin: 1 to 255 visible ASCII characters, no plus, and none that is escaped."""
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
    """Return the end of a time, its quote still to come: `YYYY-MM-DDTHH:MM:SS.ffffffZ`, of a day that exists."""
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
    """Return the end of a UUID, and write it in binary to `ids` at `to`."""
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
    """Return the end of the hex digits of the leaf hash before."""
    if at < 0:
        return -1
    for i in range(32):
        byte = leaves[leaf + i]
        if data[at] != _HEX_DIGITS[byte >> 4] or data[at + 1] != _HEX_DIGITS[byte & 15]:
            return -1
        at += 2
    return at


@compiled
def behind(data: Any, at: int, literal: Any) -> int:
    """Return where `literal` ends, which must begin at `at`; -1 if it does not, or `at` is negative."""
    if at < 0:
        return -1
    for i in range(len(literal)):
        if data[at + i] != literal[i]:
            return -1
    return at + len(literal)


@compiled
def before(one: Any, at: int, end: int, other: Any, other_at: int, other_end: int) -> Any:
    """Tell whether the first bytes sort before the second."""
    while at < end and other_at < other_end:
        if one[at] != other[other_at]:
            return one[at] < other[other_at]
        at += 1
        other_at += 1
    return other_at < other_end


@compiled
def same(one: Any, at: int, other: Any, other_at: int, length: int) -> bool:
    """Tell whether `length` bytes are the same."""
    for i in range(length):  # noqa: SIM110 - numba compiles no generators
        if one[at + i] != other[other_at + i]:
            return False
    return True


@compiled
def width(row: Any, place: int) -> int:
    """Return how many bytes lie between two places of a row, -1 for NULL."""
    return row[place + 1] - row[place] if row[place] >= 0 else -1


@compiled
def in_family(data: Any, at: int, end: int, families: Any) -> bool:
    """Tell whether the first word of a type, up to a dot, is one of `families`."""
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
