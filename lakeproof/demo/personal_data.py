# SPDX-License-Identifier: Apache-2.0
"""
Customers with personal data, and with columns that only look like it: computed, nobody's real data.

`PERSONAL` names the columns that detection must find at 92 percent, and as what; no other column may be found at 92.
Card numbers pass Luhn and begin as test cards do, IBANs pass mod 97, social security numbers lie in ranges that are
assigned. The look-alikes: order numbers of sixteen digits, part numbers shaped like social security numbers.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ledger.format.events import DetectionKind

PERSONAL: Final = {
    "email": DetectionKind.EMAIL,
    "ssn": DetectionKind.US_SSN,
    "card_number": DetectionKind.CREDIT_CARD,
    "phone": DetectionKind.PHONE,
    "iban": DetectionKind.IBAN,
}

PERSON_SCHEMA: Final = pa.schema(
    [
        pa.field("customer_id", pa.int64(), nullable=False),
        pa.field("tenant_id", pa.string()),
        pa.field("full_name", pa.string()),
        pa.field("email", pa.string()),
        pa.field("ssn", pa.string()),
        pa.field("card_number", pa.string()),
        pa.field("phone", pa.string()),
        pa.field("iban", pa.string()),
        pa.field("order_number", pa.string()),
        pa.field("part_number", pa.string()),
    ]
)

_FIRST_NAMES: Final = ("Ada", "Bela", "Chen", "Dora", "Emre", "Fatou", "Goran", "Hana", "Ines", "Jonas", "Kofi")
_LAST_NAMES: Final = ("Abe", "Berg", "Costa", "Diaz", "Eide", "Fabre", "Gupta", "Haas", "Ivanov", "Jung", "Klein", "Li")
_SPREAD: Final = 2_654_435_761
"""Knuth's multiplier: neighbours get numbers that are far apart."""


def person_rows(first: int, count: int) -> pa.Table:
    """
    Return customers `first` … `first + count - 1`.
    """
    numbers = [(number, number * _SPREAD % 2**32) for number in range(first, first + count)]
    return pa.table(
        {
            "customer_id": [number for number, _ in numbers],
            "tenant_id": [f"shop-{number % 7}" for number, _ in numbers],
            "full_name": [_name(number, " ") for number, _ in numbers],
            "email": [f"{_name(number, '.').lower()}.{number}@mail{number % 5}.example.com" for number, _ in numbers],
            "ssn": [_ssn(spread) for _, spread in numbers],
            "card_number": [_card(spread) for _, spread in numbers],
            "phone": [_phone(spread) for _, spread in numbers],
            "iban": [_iban(spread) for _, spread in numbers],
            "order_number": [f"{7_000_000_000_000_000 + number * 1_000_003:016d}" for number, _ in numbers],
            "part_number": [f"{900 + spread % 100}-{spread // 100 % 100:02d}-{number % 10_000:04d}"
                            for number, spread in numbers],
        },
        schema=PERSON_SCHEMA,
    )  # fmt: skip


def _name(number: int, joint: str) -> str:
    last = _LAST_NAMES[number // len(_FIRST_NAMES) % len(_LAST_NAMES)]
    return f"{_FIRST_NAMES[number % len(_FIRST_NAMES)]}{joint}{last}"


def _ssn(spread: int) -> str:
    """Return area 001-665, group 01-99, serial 0001-9999, as the Social Security Administration assigns them."""
    return f"{1 + spread % 665:03d}-{1 + spread // 665 % 99:02d}-{1 + spread // 65_835 % 9_999:04d}"


def _card(spread: int) -> str:
    """Return sixteen digits that begin with 4 and pass Luhn (ISO/IEC 7812-1, annex B)."""
    payload = f"4{spread % 10**14:014d}"
    total = sum(sum(divmod(int(digit) * (2 - position % 2), 10)) for position, digit in enumerate(payload))
    return f"{payload}{-total % 10}"


def _phone(spread: int) -> str:
    """Return a number of the North American plan: area and exchange begin with 2 to 9 and do not end in 11."""
    area, exchange, line = 201 + spread % 8 * 100 + 7, 223 + spread // 8 % 7 * 100 + spread // 56 % 70, spread % 10_000
    return f"({area}) {exchange}-{line:04d}"


def _iban(spread: int) -> str:
    """Return a German IBAN whose check digits are right (ISO 13616, mod 97)."""
    account = f"{10_000_000 + spread % 80_000_000:08d}{spread:010d}"
    check = 98 - int(f"{account}131400") % 97
    return f"DE{check:02d}{account}"
