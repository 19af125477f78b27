# SPDX-License-Identifier: Apache-2.0
"""
The kernel that counts matches: one pass over the bytes of a column, compiled by numba.

Guarantee: for any bytes, the counts are those that `rules.py` defines. Tests compare them with an oracle of regular
expressions. The kernel releases the interpreter's lock.

All compiled code is in this one file, and the tables of the rules are arguments: a table of another module would stay
in numba's cache after it was changed (`ledger/verify/compiling.py`). Without a writable cache, each process compiles
for itself, in eight seconds. The code is the subset of Python that numba compiles, without generators and exceptions.

A value is cut into *pieces* (letters, digits, `_`, `(`, `)`, `/`, `.`, `-`). A *line* is pieces without letters that
single spaces join; it may begin with a plus. A *number* is groups of digits, with a *joint* (a space, `.`, `/`, `-`, or
nothing) before each.

Arguments that many functions share: `data` are the bytes, and `start`, `at` and `end` are positions in it (`end` is
exclusive). `tables` are `compiled.Tables`. `number` (3 x 20 integers) holds the digits, the lengths of the groups, and
the joint before each group. `cell` (7 x 3 integers) holds candidates, valid ones and spread of one value, by pattern.
"""

from __future__ import annotations

from typing import Any, Final

from ledger.verify.compiling import cached, compiled

DIGIT, UPPER, LOWER, JOINT, LOCAL, DOMAIN = 1, 2, 4, 8, 16, 32
"""Classes of bytes; `_` counts as a lower letter."""
LETTER: Final = UPPER | LOWER
WORD: Final = DIGIT | LETTER
PIECE: Final = WORD | JOINT

SPACE, QUOTE, OPEN, CLOSE, PLUS, DASH, DOT, SLASH, COLON, AT, ZERO, X, N, CAPITAL_A = b" '()+-./:@0xnA"

SSN, SSN_BARE, EMAIL, CARD, PHONE, PHONE_BARE, IBAN = range(7)
CANDIDATES, VALID, CELLS, SPREAD = range(4)

NUMBER_MIN, NUMBER_MAX, DIGITS_MAX = 9, 32, 19
MAIL_MIN = 3
"""`a@b` is a candidate, and there is none that is shorter."""
LOCAL_MAX, ADDRESS_MAX, LABEL_MAX = 64, 254, 63
BUCKETS, BUCKET_PRIME = 32, 65_521
"""
A social security number falls into bucket (area mod 32), a card into ((n mod 65,521) mod 32). So does an IBAN, whose n
is its rearranged characters read in base 36.
"""


@cached
def count(
    data: Any, spans: Any, validity: Any, first: int, weights: Any, tables: Any, number: Any, cell: Any, rows: Any
) -> None:
    """
    Add the counts of `len(spans) - 1` values to `rows` (7 x 4: candidates, valid, cells, spread; one row per pattern).

    Value i is `data[spans[i]:spans[i + 1]]`. It is null if bit `first + i` of `validity` is 0; without validity bytes
    none is null. It counts `weights[i]` times, or once without weights. `number` and `cell` are working memory; `cell`
    must be zero, and is zero again at the end.
    """
    for i in range(len(spans) - 1):
        start, end = spans[i], spans[i + 1]
        if end - start < MAIL_MIN or (len(validity) and not validity[(first + i) >> 3] >> ((first + i) & 7) & 1):
            continue
        if not scan(data, start, end, tables, number, cell):
            continue
        weight = weights[i] if len(weights) else 1
        for pattern in range(7):
            rows[pattern, CANDIDATES] += weight * cell[pattern, 0]
            if weight and cell[pattern, 1]:
                rows[pattern, VALID] += weight * cell[pattern, 1]
                rows[pattern, CELLS] += weight
                rows[pattern, SPREAD] |= cell[pattern, 2]
            for member in range(3):
                cell[pattern, member] = 0


@compiled
def scan(data: Any, start: int, end: int, tables: Any, number: Any, cell: Any) -> bool:
    """Count the candidates of one value in `cell`; return whether there was any."""
    classes = tables.classes
    found = False
    mail_floor = iban_floor = at = start
    while at < end:
        kind = classes[data[at]]
        if kind & PIECE:
            stop, seen = piece(data, at, end, classes)
            if not seen & LETTER:
                stop = line_end(data, stop, end, classes)
                first = at - 1 if at > start and data[at - 1] == PLUS else at
                found |= line(data, first, stop, tables, number, cell)
            elif seen & UPPER and seen & DIGIT:
                iban_floor, hit = ibans(data, at, stop, end, iban_floor, tables, cell)
                found |= hit
            at = stop
            continue
        if data[at] == AT:
            mail_floor, hit = mail(data, start, at, end, mail_floor, tables, cell)
            found |= hit
        at += 1
    return found


@compiled
def piece(data: Any, at: int, end: int, classes: Any) -> Any:
    """Return the end of the piece that begins at `at`, and the union of its bytes' classes."""
    seen = 0
    while at < end:
        kind = classes[data[at]]
        if not kind & PIECE:
            break
        seen |= kind
        at += 1
    return at, seen


@compiled
def line_end(data: Any, at: int, end: int, classes: Any) -> int:
    """Return the end of the line whose first piece ends at `at`."""
    while at + 1 < end and data[at] == SPACE and classes[data[at + 1]] & PIECE:
        stop, seen = piece(data, at + 1, end, classes)
        if seen & LETTER:
            break
        at = stop
    return at


@compiled
def line(data: Any, start: int, end: int, tables: Any, number: Any, cell: Any) -> bool:
    """Count a line as one number if it is one, else each of its pieces; return whether there was a candidate."""
    if judge(data, start, end, tables, number, cell):
        return True
    found = False
    at = start
    for stop in range(start, end + 1):
        if stop == end or data[stop] == SPACE:
            if stop - at < end - start:
                found |= judge(data, at, stop, tables, number, cell)
            at = stop + 1
    return found


@compiled
def judge(data: Any, start: int, end: int, tables: Any, number: Any, cell: Any) -> bool:
    """Count these bytes, trimmed, if they have the form of a number; return whether they do."""
    start, end = trimmed(data, start, end)
    if end - start < NUMBER_MIN or end - start > NUMBER_MAX:
        return False
    plus = data[start] == PLUS
    digits, groups, paren = parse(data, start + plus, end, number)
    if groups == 0:
        return False
    if not plus and paren < 0:
        if groups == 1:
            return plain(digits, tables, number, cell)
        if even(number, groups) and (number[2, 1] == DASH or number[2, 1] == SPACE):
            if shape(number, groups) == 324:
                note(cell, SSN, ssn(number, tables), number[0, 0] * 100 + number[0, 1] * 10 + number[0, 2])
                return True
            if shape(number, groups) in (4444, 44443, 465, 464):
                note(cell, CARD, card(digits, tables, number), bucket(digits, number))
                return True
    if digits < 8 or digits > 15:
        return False
    is_loose = not plus and paren < 0 and loose(digits, groups, number)
    valid = phone(plus, digits, groups, paren, tables, number)
    note(cell, PHONE, valid, -1)
    if is_loose and not valid:
        note(cell, PHONE_BARE, 1, -1)
    return True


@compiled
def trimmed(data: Any, start: int, end: int) -> Any:
    """Return start and end without trailing full stops, and then without one pair of enclosing parentheses."""
    while end > start and data[end - 1] == DOT:
        end -= 1
    around = end - start >= 2 and data[start] == OPEN and data[end - 1] == CLOSE
    for at in range(start + 1, end - 1):
        around = around and data[at] != OPEN and data[at] != CLOSE
    return (start + 1, end - 1) if around else (start, end)


@compiled
def parse(data: Any, at: int, end: int, number: Any) -> Any:
    """
    Read groups of digits into `number`; return the counts of digits and groups, and the group in parentheses or -1.

    Zero groups mean that these bytes are not a number.
    """
    digits = groups = 0
    paren = -1
    while at < end:
        joint = 0
        if groups and (data[at] == SPACE or data[at] == DOT or data[at] == SLASH or data[at] == DASH):
            joint = data[at]
            at += 1
        opened = at < end and data[at] == OPEN
        if opened:
            if paren >= 0:
                return 0, 0, -1
            paren = groups
            at += 1
        length = 0
        while at < end and ZERO <= data[at] < ZERO + 10:
            if digits == DIGITS_MAX:
                return 0, 0, -1
            number[0, digits] = data[at] - ZERO
            digits += 1
            length += 1
            at += 1
        if length == 0:
            return 0, 0, -1
        if opened:
            if length > 5 or at == end or data[at] != CLOSE:
                return 0, 0, -1
            at += 1
        number[1, groups] = length
        number[2, groups] = joint
        groups += 1
    return digits, groups, paren


@compiled
def shape(number: Any, groups: int) -> int:
    """Return the lengths of the groups as decimal digits (3-2-4 is 324), 0 if that would be ambiguous."""
    lengths = 0
    for group in range(groups):
        if number[1, group] > 9 or groups > 5:
            return 0
        lengths = lengths * 10 + number[1, group]
    return lengths


@compiled
def even(number: Any, groups: int) -> bool:
    """Return whether all joints between groups are the same."""
    same = True
    for group in range(2, groups):
        same &= number[2, group] == number[2, 1]
    return same


@compiled
def plain(digits: int, tables: Any, number: Any, cell: Any) -> bool:
    """Count a number without punctuation; return whether it has enough digits to be a candidate."""
    if digits >= 13:
        note(cell, CARD, card(digits, tables, number), bucket(digits, number))
        return True
    if digits == 9:
        note(cell, SSN_BARE, ssn(number, tables), number[0, 0] * 100 + number[0, 1] * 10 + number[0, 2])
    if digits >= 9:
        note(cell, PHONE_BARE, phone_bare(digits, tables, number), -1)
    return digits >= 9


@compiled
def note(cell: Any, pattern: int, valid: int, into: int) -> None:
    """Count a candidate; if it is valid and `into` is not negative, fill bucket `into` mod 32 of its spread."""
    cell[pattern, 0] += 1
    if valid:
        cell[pattern, 1] += 1
        if into >= 0:
            cell[pattern, 2] |= 1 << (into % BUCKETS)


@compiled
def ssn(number: Any, tables: Any) -> bool:
    """Return whether nine digits may be a social security number."""
    value = 0
    for i in range(9):
        value = value * 10 + number[0, i]
    area, group, serial = value // 1_000_000, value // 10_000 % 100, value % 10_000
    valid = 0 < area < 900 and area != 666 and group > 0 and serial > 0
    for advertised in tables.advertised:
        valid = valid and value != advertised
    return bool(valid)


@compiled
def card(digits: int, tables: Any, number: Any) -> bool:
    """Return whether digits are of a card network and pass Luhn (ISO/IEC 7812-1, annex B)."""
    total = 0
    for i in range(digits):
        digit = number[0, digits - 1 - i]
        if i % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    if total % 10:
        return False
    leading = 0
    for i in range(6):
        leading = leading * 10 + number[0, i]
    for i in range(len(tables.networks)):
        if tables.networks[i, 0] <= leading <= tables.networks[i, 1] and tables.networks[i, 2] >> digits & 1:
            return True
    return False


@compiled
def bucket(digits: int, number: Any) -> int:
    """Return the number that the digits form, modulo `BUCKET_PRIME`."""
    value = 0
    for i in range(digits):
        value = (value * 10 + number[0, i]) % BUCKET_PRIME
    return value


@compiled
def american(first: int, number: Any) -> bool:
    """Return whether the ten digits from `first` on may be a number of the North American Numbering Plan."""
    d = number[0]
    return bool(
        d[first] >= 2
        and d[first + 1] != 9
        and not (d[first + 1] == 1 and d[first + 2] == 1)
        and d[first + 3] >= 2
        and not (d[first + 4] == 1 and d[first + 5] == 1)
    )


@compiled
def phone(plus: int, digits: int, groups: int, paren: int, tables: Any, number: Any) -> bool:
    """Return whether groups of digits are a phone number: international, North American or national."""
    if plus or (paren != 0 and number[1, 0] >= 2 and number[0, 0] == 0 and number[0, 1] == 0):
        return international(plus, digits, groups, paren, tables, number)
    if number[0, 0] == 0:
        return national(digits, groups, paren, number)
    country = 1 if digits == 11 and number[0, 0] == 1 and number[1, 0] == 1 and paren != 0 else 0
    if digits != 10 + country or groups != 3 + country or not american(country, number):
        return False
    if number[1, country] != 3 or number[1, country + 1] != 3:
        return False
    second, third = number[2, country + 1], number[2, country + 2]
    if country and number[2, 1] == SLASH:
        return False
    if paren >= 0:
        return bool(paren == country and (second == 0 or second == SPACE) and third == DASH)
    return bool(second == third and second != SLASH)


@compiled
def international(plus: int, digits: int, groups: int, paren: int, tables: Any, number: Any) -> bool:
    """Return whether the digits after + or 00 begin with a country code and have the length of its numbers."""
    if groups == 2 and number[2, 1] == DOT:
        return False
    skipped = -1
    if paren > 0 and number[1, paren] == 1:
        skipped = 0
        for group in range(paren):
            skipped += number[1, group]
        if number[0, skipped]:
            skipped = -1
    count = 0
    for i in range(0 if plus else 2, digits):
        if i != skipped:
            number[0, count] = number[0, i]
            count += 1
    return assigned(count, tables, number)


@compiled
def assigned(digits: int, tables: Any, number: Any) -> bool:
    """Return whether digits begin with a country code and have the length of its numbers."""
    code = 0
    for i in range(min(3, digits)):
        code = code * 10 + number[0, i]
        if code and tables.phones[code, 0]:
            fits = tables.phones[code, 0] <= digits <= tables.phones[code, 1]
            return bool(fits and (code != 1 or american(1, number)))
        if code == 0:
            return False
    return False


@compiled
def national(digits: int, groups: int, paren: int, number: Any) -> bool:
    """Return whether digits with the trunk prefix 0 are a phone number."""
    if digits < 9 or digits > 12 or groups < 2 or groups > 5 or number[0, 1] == 0 or paren > 0:
        return False
    if groups == 5 and digits == 10 and paren < 0 and number[2, 1] == DOT:
        pairs = even(number, groups)
        for group in range(groups):
            pairs &= number[1, group] == 2
        return bool(pairs)
    if number[1, 0] < 2 or number[1, 0] > 5 or number[2, 1] == DOT:
        return False
    for group in range(1, groups):
        if number[1, group] < 2 or number[1, group] > 8:
            return False
        if group >= 2 and (number[2, group] != number[2, 2] or (number[2, 2] != SPACE and number[2, 2] != DASH)):
            return False
    return True


@compiled
def loose(digits: int, groups: int, number: Any) -> bool:
    """Return whether groups without trunk prefix may be a phone number, in a column whose name indicates phones."""
    fits = 8 <= digits <= 11 and 3 <= groups <= 5 and number[0, 0] != 0
    for group in range(groups):
        fits = fits and 2 <= number[1, group] <= 4 and (group == 0 or number[2, group] == SPACE)
    return fits


@compiled
def phone_bare(digits: int, tables: Any, number: Any) -> bool:
    """Return whether 9 to 12 digits may be a phone number, in a column whose name indicates phones."""
    first, second = number[0, 0], number[0, 1]
    if first == 0:
        return bool(second)
    if digits == 9:
        return bool(first >= 6)
    if digits == 10:
        return bool(first >= 6 or american(0, number))
    if digits == 11 and first == 1 and second >= 3:
        return True
    return bool(assigned(digits, tables, number))


@compiled
def mail(data: Any, start: int, at: int, end: int, floor: int, tables: Any, cell: Any) -> Any:
    """
    Count the address around the @ at `at`; return where the next local part may begin, and whether it is a candidate.

    Its local part begins at `floor` or later; `start` and `end` are those of the value.
    """
    first = at
    while first > floor and tables.classes[data[first - 1]] & LOCAL:
        first -= 1
    stop = at + 1
    while stop < end and tables.classes[data[stop]] & DOMAIN:
        stop += 1
    if first == at or stop == at + 1:
        return floor, False
    in_url = first > start and data[first - 1] == SLASH
    if stop < end:
        in_url |= data[stop] == COLON or data[stop] == SLASH or data[stop] == AT
    while first < at and data[first] == QUOTE:
        first += 1
    last = stop
    while last > at + 1 and (data[last - 1] == DOT or data[last - 1] == DASH):
        last -= 1
    valid = not in_url and last - first <= ADDRESS_MAX and local(data, first, at, tables.classes)
    note(cell, EMAIL, valid and domain(data, at + 1, last, tables), -1)
    return stop, True


@compiled
def local(data: Any, start: int, end: int, classes: Any) -> bool:
    """Return whether bytes of the class LOCAL are the local part of an address."""
    if not 1 <= end - start <= LOCAL_MAX or not classes[data[start]] & WORD or data[end - 1] == DOT:
        return False
    single = True
    for at in range(start + 1, end):
        single &= data[at] != DOT or data[at - 1] != DOT
    return single


@compiled
def domain(data: Any, start: int, end: int, tables: Any) -> bool:
    """Return whether bytes of the class DOMAIN are a host name of at least two labels."""
    label, labels = start, 0
    for at in range(start, end + 1):
        if at < end and data[at] != DOT:
            continue
        if not 1 <= at - label <= LABEL_MAX or data[label] == DASH or data[at - 1] == DASH:
            return False
        labels += 1
        if at < end:
            label = at + 1
    if labels < 2 or end - label < 2:
        return False
    if end - label > 4 and data[label] == X and data[label + 1] == N and data[label + 2] == DASH == data[label + 3]:
        return True
    for at in range(label, end):
        if not tables.classes[data[at]] & LETTER:
            return False
    for ending in tables.endings:
        same = True
        for i in range(max(len(ending), end - label)):
            have = data[label + i] | 32 if label + i < end else 0
            same &= i < len(ending) and have == ending[i]
        if same:
            return False
    return True


@compiled
def ibans(data: Any, start: int, stop: int, end: int, floor: int, tables: Any, cell: Any) -> Any:
    """
    Count the IBANs that begin in a piece; return where the next one may begin, and whether there was a candidate.

    The piece ends at `stop`, the value at `end`: an IBAN with spaces goes beyond the piece. It begins at `floor` or
    later.
    """
    found = False
    at = max(start, floor)
    while at + 4 <= stop:
        if tables.classes[data[at]] & UPPER and (at == start or not tables.classes[data[at - 1]] & WORD):
            last, remainder, into = iban(data, at, end, tables)
            if last:
                note(cell, IBAN, remainder == 1, into)
                found = True
                floor = at = last
                continue
        at += 1
    return floor, found


@compiled
def iban(data: Any, start: int, end: int, tables: Any) -> Any:
    """Read an IBAN; return its end (0 if this is not an IBAN), its number modulo 97, and its bucket."""
    classes = tables.classes
    if not classes[data[start + 1]] & UPPER or not classes[data[start + 2]] & classes[data[start + 3]] & DIGIT:
        return 0, 0, 0
    length = tables.ibans[data[start] - CAPITAL_A, data[start + 1] - CAPITAL_A]
    spaced = start + 4 < end and data[start + 4] == SPACE
    at = start + 4
    last = remainder = into = 0
    for i in range(4, length + 4):
        if i == length:
            if at < end and classes[data[at]] & WORD:
                return 0, 0, 0
            last = at
            at = start
        if i < length:
            if spaced and i % 4 == 0:
                if at >= end or data[at] != SPACE:
                    return 0, 0, 0
                at += 1
            if at >= end or not classes[data[at]] & (DIGIT | UPPER):
                return 0, 0, 0
        if classes[data[at]] & DIGIT:
            value = data[at] - ZERO
            remainder = (remainder * 10 + value) % 97
        else:
            value = data[at] - CAPITAL_A + 10
            remainder = (remainder * 100 + value) % 97
        into = (into * 36 + value) % BUCKET_PRIME
        at += 1
    return (last, remainder, into) if length else (0, 0, 0)
