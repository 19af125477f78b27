# SPDX-License-Identifier: Apache-2.0
"""
Columns as they are met: families of values that are personal data, and of values that only look like it.

A family makes a value from a random generator. `column` makes many, the same ones in every run.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from ledger.format.events import DetectionKind

Family = Callable[[Random], str]

_START = datetime(2024, 1, 1)  # noqa: DTZ001 - text in a column, not a time
_NAMES = ("anna", "b.kim", "carlos", "dora_x", "e.f", "fatima", "george", "hans-peter", "ines", "jörg", "k8", "li")
_HOSTS = ("example.com", "mail.example.org", "acme.co.uk", "firma.de", "xn--bcher-kva.example", "sub.example.museum")
_TEXT = "the order was sent to a customer and then came back after some days because of what it said"
_WORDS = _TEXT.split()
_IBANS = {"DE": "18d", "FR": "10d11a2d", "GB": "4A14d", "NL": "4A10d", "ES": "20d", "IT": "1A10d12a", "NO": "11d"}


def column(family: Family, count: int, *, seed: object = 0) -> list[str]:
    """Return `count` values of a family, the same ones for the same seed."""
    random = Random(f"{seed}")  # noqa: S311 - values to be found again, not secrets
    return [family(random) for _ in range(count)]


def digits(random: Random, pattern: str) -> str:
    """Return `pattern` with a random digit for every `#`, and a random digit but 0 for every `%`."""
    filled = (
        random.choice("0123456789") if c == "#" else random.choice("123456789") if c == "%" else c for c in pattern
    )
    return "".join(filled)


def luhn(number: str) -> str:
    """Return `number` with its check digit behind it."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return number + str(-total % 10)


def gs1(number: str) -> str:
    """Return `number` with the check digit of an EAN, GTIN or ISBN-13."""
    total = sum(int(digit) * (3 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(number)))
    return number + str(-total % 10)


def ssn(random: Random) -> str:
    area = random.choice([*range(1, 666), *range(667, 900)])
    return f"{area:03}{random.randint(1, 99):02}{random.randint(1, 9999):04}"


def card(random: Random) -> str:
    stem = random.choice(
        ["4" + "#" * 14, "4" + "#" * 14, "5%" + "#" * 13, "6011" + "#" * 11, "3528" + "#" * 11, "37" + "#" * 12]
    )
    return luhn(digits(random, "51" + stem[2:] if stem.startswith("5") else stem))


def american(random: Random) -> str:
    area = random.choice(["212", "415", "650", "718", "305", "206", "312", "617", "702", "503"])
    return area + digits(random, "%").replace("1", "5") + digits(random, "0#") + digits(random, "####")


def iban(random: Random, country: str | None = None) -> str:
    country = country or random.choice(sorted(_IBANS))
    sets = {"d": string.digits, "a": string.digits + string.ascii_uppercase, "A": string.ascii_uppercase}
    account, count = "", ""
    for c in _IBANS[country]:
        if c.isdigit():
            count += c
        else:
            account += "".join(random.choice(sets[c]) for _ in range(int(count)))
            count = ""
    check = 98 - int("".join(str(int(c, 36)) for c in f"{account}{country}00")) % 97
    return f"{country}{check:02}{account}"


def mail(random: Random) -> str:
    return f"{random.choice(_NAMES)}{random.randint(1, 999)}@{random.choice(_HOSTS)}"


def words(random: Random, count: int) -> str:
    return " ".join(random.choice(_WORDS) for _ in range(count))


def grouped(text: str, *lengths: int, joint: str) -> str:
    parts, at = [], 0
    for length in lengths:
        parts.append(text[at : at + length])
        at += length
    return joint.join(parts + ([text[at:]] if text[at:] else []))


def sometimes(percent: int, this: Family, other: Family) -> Family:
    return lambda random: this(random) if random.random() * 100 < percent else other(random)


def note(make: Family) -> Family:
    return lambda random: f"{words(random, 4)} {make(random)}, {words(random, 3)}."


def moment(random: Random) -> datetime:
    return _START + timedelta(seconds=random.randrange(60_000_000), microseconds=random.randrange(1_000_000))


def hexadecimal(random: Random, length: int) -> str:
    return f"{random.getrandbits(4 * length):0{length}x}"


def uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def dashed_ssn(random: Random) -> str:
    return grouped(ssn(random), 3, 2, joint="-")


def dashed_american(random: Random) -> str:
    return grouped(american(random), 3, 3, joint="-")


_S, _M, _C, _P, _I = (
    DetectionKind.US_SSN,
    DetectionKind.EMAIL,
    DetectionKind.CREDIT_CARD,
    DetectionKind.PHONE,
    DetectionKind.IBAN,
)

TRUE: dict[str, tuple[DetectionKind, str, Family]] = {
    "ssn dashed": (_S, "ssn", dashed_ssn),
    "ssn spaced": (_S, "social_security_number", lambda r: grouped(ssn(r), 3, 2, joint=" ")),
    "ssn bare": (_S, "SSN", ssn),
    "ssn in notes": (_S, "employee_ssn", note(dashed_ssn)),
    "ssn with label": (_S, "customer.ssn", lambda r: f"SSN: {dashed_ssn(r)}"),
    "ssn half empty": (_S, "SocialSecurityNo", sometimes(50, dashed_ssn, lambda _: "")),
    "ssn one in ten": (_S, "ssn_1", sometimes(10, dashed_ssn, lambda r: words(r, 3))),
    "email": (_M, "email", mail),
    "email upper": (_M, "E_MAIL", lambda r: mail(r).upper()),
    "email tagged": (_M, "emailAddress", lambda r: f"u+{r.randint(1, 99)}@{r.choice(_HOSTS)}"),
    "email with name": (_M, "customer_email", lambda r: f"Some One <{mail(r)}>"),
    "email list": (_M, "emails", lambda r: f"{mail(r)}; {mail(r)}"),
    "email in notes": (_M, "contact.mail", note(mail)),
    "email one in ten": (_M, "correo_electronico", sometimes(10, mail, lambda r: words(r, 3))),
    "email mailto": (_M, "courriel", lambda r: f"mailto:{mail(r)}"),
    "email quoted": (_M, "user_email", lambda r: f"'{mail(r)}'"),
    "card": (_C, "credit_card_number", card),
    "card dashed": (_C, "cc_number", lambda r: grouped(luhn(digits(r, "4" + "#" * 14)), 4, 4, 4, joint="-")),
    "card spaced": (_C, "cardNumber", lambda r: grouped(luhn(digits(r, "51" + "#" * 13)), 4, 4, 4, joint=" ")),
    "card amex": (_C, "pan", lambda r: grouped(luhn(digits(r, "37" + "#" * 12)), 4, 6, joint=" ")),
    "card in notes": (_C, "kreditkarte", note(card)),
    "card among orders": (_C, "payment_card", sometimes(50, card, lambda r: digits(r, "%" + "#" * 15))),
    "card half empty": (_C, "carte_bancaire", sometimes(50, card, lambda _: "n/a")),
    "card one in ten": (_C, "tarjeta_credito", sometimes(10, card, lambda r: words(r, 2))),
    "phone e164": (_P, "phone", lambda r: "+1" + american(r)),
    "phone german": (_P, "telefonnummer", lambda r: digits(r, "+49 17% #######")),
    "phone french": (_P, "téléphone", lambda r: digits(r, "06 ## ## ## ##")),
    "phone french dots": (_P, "tel", lambda r: digits(r, "01.##.##.##.##")),
    "phone british": (_P, "mobile", lambda r: digits(r, "07700 9#####")),
    "phone american": (_P, "phone_number", dashed_american),
    "phone american parentheses": (
        _P,
        "homePhone",
        lambda r: "({}) {}-{}".format(*grouped(american(r), 3, 3, joint=" ").split()),
    ),
    "phone american dots": (_P, "cell_phone", lambda r: grouped(american(r), 3, 3, joint=".")),
    "phone american 1": (_P, "contact_number", lambda r: "1-" + dashed_american(r)),
    "phone bare": (_P, "phone_no", american),
    "phone bare german": (_P, "handy", lambda r: digits(r, "017########")),
    "phone spanish": (_P, "telefono_movil", lambda r: digits(r, "6## ### ###")),
    "phone with 00": (_P, "telefono", lambda r: digits(r, "0039 06 %#######")),
    "phone in notes": (_P, "phone_home", note(dashed_american)),
    "iban": (_I, "iban", iban),
    "iban spaced": (_I, "IBAN_number", lambda r: grouped(iban(r, "DE"), 4, 4, 4, 4, 4, joint=" ")),
    "iban in notes": (_I, "customer_iban", note(iban)),
    "iban norwegian": (_I, "accountIban", lambda r: iban(r, "NO")),
    "iban one in ten": (_I, "iban_1", sometimes(10, iban, lambda r: words(r, 3))),
}
"""By name: the kind, a column name that indicates it, and the family."""

LOOK_ALIKE: dict[str, tuple[str, Family]] = {
    "order number of 16 digits": ("order_number", lambda r: digits(r, "%" + "#" * 15)),
    "order number like visa": ("order_id", lambda r: digits(r, "4" + "#" * 15)),
    "order number in fours": ("reference", lambda r: digits(r, "%###-####-####-####")),
    "order number by date": ("order_no", lambda r: f"{moment(r):%Y%m%d}{digits(r, '########')}"),
    "snowflake id": ("tweet_id", lambda r: str(r.randrange(10**18, 2 * 10**18))),
    "invoice of 13 digits": ("invoice_number", lambda r: digits(r, "4" + "#" * 12)),
    "tracking number of 22 digits": ("tracking_number", lambda r: digits(r, "94001" + "#" * 17)),
    "tracking number of 15 digits": ("shipment", lambda r: digits(r, "%" + "#" * 14)),
    "tracking number with letters": ("parcel", lambda r: digits(r, "1Z999AA1########")),
    "part number 3-2-4": ("part_number", lambda r: digits(r, "###-##-####")),
    "part number 3-2-4 in order": ("part_no", lambda r: digits(r, "100-01-####")),
    "part number 3-2-4 spaced": ("material", lambda r: digits(r, "### ## ####")),
    "part number 3-3-4": ("item_number", lambda r: digits(r, "###-###-####")),
    "part number 4-3-3": ("component", lambda r: digits(r, "####-###-###")),
    "sku": ("sku", lambda r: digits(r, "AB-####-##")),
    "product code with zeros": ("product_code", lambda r: digits(r, "00######-###")),
    "unix seconds": ("created", lambda r: str(r.randrange(1_600_000_000, 1_800_000_000))),
    "unix milliseconds": ("created_ms", lambda r: str(r.randrange(16 * 10**11, 18 * 10**11))),
    "unix microseconds": ("event_time", lambda r: str(r.randrange(16 * 10**14, 18 * 10**14))),
    "iso time": ("updated_at", lambda r: moment(r).isoformat()),
    "iso date": ("day", lambda r: f"{moment(r):%Y-%m-%d}"),
    "date and hour": ("bucket", lambda r: f"{moment(r):%d.%m.%Y %H}"),
    "american date": ("ship_date", lambda r: f"{moment(r):%m/%d/%Y}"),
    "compact time": ("batch", lambda r: f"{moment(r):%Y%m%d%H%M%S}"),
    "time of day": ("at", lambda r: f"{moment(r):%H:%M:%S}"),
    "ean": ("ean", lambda r: gs1(digits(r, "40#########"[:2] + "#" * 10))),
    "gtin-14": ("gtin", lambda r: gs1(digits(r, "1" + "#" * 12))),
    "isbn-13": ("isbn", lambda r: gs1(digits(r, "978" + "#" * 9))),
    "isbn-10 dashed": ("isbn10", lambda r: digits(r, "0-###-#####-#")),
    "upc": ("upc", lambda r: gs1(digits(r, "0" + "#" * 10))),
    "imei": ("imei", lambda r: luhn(digits(r, "35" + "#" * 12))),
    "iccid": ("sim", lambda r: luhn(digits(r, "8949" + "#" * 14))),
    "siret": ("siret", lambda r: luhn(digits(r, "%" + "#" * 12))),
    "serial number": ("serial", lambda r: digits(r, "SN##########")),
    "vin": ("vin", lambda r: "".join(r.choice("ABCDEFGHJKLMNPRSTUVWXYZ0123456789") for _ in range(17))),
    "uuid": ("id", uuid),
    "uuid without letters": ("token", lambda r: digits(r, "########-####-4###-8###-############")),
    "piece of a uuid": ("short_id", lambda r: uuid(r)[:13]),
    "hexadecimal id": ("trace_id", lambda r: hexadecimal(r, 32)),
    "short hexadecimal id": ("span_id", lambda r: hexadecimal(r, 16)),
    "sha-256": ("checksum", lambda r: hexadecimal(r, 64)),
    "base64": (
        "blob",
        lambda r: "".join(r.choice(string.ascii_letters + string.digits + "+/") for _ in range(32)) + "===",
    ),
    "decimal": ("amount", lambda r: f"{r.random() * 10**6:.4f}"),
    "signed decimal": ("delta", lambda r: f"{r.choice('+-')}{r.random() * 10**7:.6f}"),
    "coordinates": ("location", lambda r: f"{r.uniform(-90, 90):+.7f}, {r.uniform(-180, 180):+.7f}"),
    "ip address": ("ip", lambda r: ".".join(str(r.randrange(256)) for _ in range(4))),
    "ip address in thousands": ("address", lambda r: ".".join(str(r.randrange(100, 256)) for _ in range(4))),
    "mac address": ("mac", lambda r: "-".join(hexadecimal(r, 2) for _ in range(6))),
    "version": ("version", lambda r: f"{r.randrange(20)}.{r.randrange(100)}.{r.randrange(1000)}-{r.randrange(9999)}"),
    "package version": ("package", lambda r: f"lodash@{r.randrange(9)}.{r.randrange(99)}.{r.randrange(99)}"),
    "git remote": ("remote", lambda r: f"git@github.com:{r.choice(_WORDS)}/{r.choice(_WORDS)}.git"),
    "url with a user": ("dsn", lambda r: f"postgres://app:secret@db{r.randrange(9)}.example.com:5432/main"),
    "image for dense screens": ("icon", lambda r: f"{r.choice(_WORDS)}@2x.png"),
    "handle": ("handle", lambda r: f"@{r.choice(_WORDS)}{r.randrange(999)}"),
    "zip and four": ("zip", lambda r: digits(r, "#####-####")),
    "ein": ("ein", lambda r: digits(r, "##-#######")),
    "itin": ("itin", lambda r: digits(r, "9##-7#-####")),
    "nine digits": ("customer_no", lambda r: digits(r, "%########")),
    "ten digits": ("account_no", lambda r: digits(r, "%#########")),
    "like an iban": ("contract", lambda r: digits(r, "DE" + "#" * 20)),
    "like a french iban": ("policy_number", lambda r: digits(r, "FR" + "#" * 25)),
    "vat id": ("vat", lambda r: digits(r, "DE#########")),
    "free text": ("comment", lambda r: words(r, 12)),
    "resolution": ("screen", lambda r: f"{r.randrange(320, 4000)}x{r.randrange(240, 2200)}"),
    "number range": ("pages", lambda r: f"{r.randrange(100, 999)}-{r.randrange(1000, 9999)}"),
}
"""By name: the name of a column that it would have, and the family."""
