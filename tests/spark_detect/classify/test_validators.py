# SPDX-License-Identifier: Apache-2.0
"""The validators against numbers that were published, and every single digit of those corrupted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from spark_detect.classify import Pattern
from spark_detect.classify.compiled import count_matches as compiled
from spark_detect.classify.kernel import CANDIDATES, VALID
from testkit.spark_detect.oracle import CountMatches
from testkit.spark_detect.oracle import count_matches as oracle
from testkit.spark_detect.oracle_validators import passes_luhn, read, rearranged, remainders

TEXTS_MAX = 20
"""Their weights are powers of 8: a count of 63 bits has room for these."""
KERNELS = pytest.mark.parametrize("count", [compiled, oracle], ids=["numba", "oracle"])

# Test numbers of networks and payment processors (PayPal's "Test credit card account numbers", Stripe's, Adyen's).
CARDS = [
    "378282246310005", "371449635398431", "378734493671000", "5610591081018250", "30569309025904", "38520000023237",
    "6011111111111117", "6011000990139424", "3530111333300000", "3566002020360505", "5555555555554444",
    "5105105105105100", "4111111111111111", "4012888888881881", "4222222222222", "2223003122003222", "6200000000000005",
    "6759649826438453", "2200000000000004", "4000000000000000006", "6205500000000000004",
]  # fmt: skip
UNKNOWN_NETWORK = {"5610591081018250"}  # Bankcard, of Australia, which ended in 2006

# The examples of the SWIFT IBAN Registry.
IBANS = [
    "AD1200012030200359100100", "AE070331234567890123456", "AL47212110090000000235698741", "AT611904300234573201",
    "BA391290079401028494", "BE68539007547034", "BG80BNBG96611020345678", "BH67BMAG00001299123456",
    "BR1800360305000010009795493C1", "CH9300762011623852957", "CR05015202001026284066", "CY17002001280000001200527600",
    "CZ6508000000192000145399", "DE89370400440532013000", "DK5000400440116243", "EE382200221020145685",
    "ES9121000418450200051332", "FI2112345600000785", "FR1420041010050500013M02606", "GB29NWBK60161331926819",
    "GE29NB0000000101904917", "GI75NWBK000000007099453", "GR1601101250000000012300695", "HR1210010051863000160",
    "HU42117730161111101800000000", "IE29AIBK93115212345678", "IL620108000000099999999", "IS140159260076545510730339",
    "IT60X0542811101000000123456", "KW81CBKU0000000000001234560101", "KZ86125KZT5004100100",
    "LB62099900000001001901229114", "LC55HEMM000100010012001200023015", "LI21088100002324013AA", "LT121000011101001000",
    "LU280019400644750000", "LV80BANK0000435195001", "MC5811222000010123456789030", "MD24AG000225100013104168",
    "ME25505000012345678951", "MT84MALT011000012345MTLCAST001S", "NL91ABNA0417164300", "NO9386011117947",
    "PL61109010140000071219812874", "PT50000201231234567890154", "RO49AAAA1B31007593840000", "RS35260005601001611379",
    "SA0380000000608010167519", "SE4550000000058398257466", "SI56263300012039086", "SK3112000000198742637541",
    "SM86U0322509800000000270100", "TN5910006035183598478831", "TR330006100519786457841326",
    "UA213223130000026007233566001", "VG96VPVG0000012345678901", "XK051212012345678906",
]  # fmt: skip

SSNS = ["001-01-0001", "665-99-9999", "667-01-0001", "899-99-9999", "899 99 9999", "123-45-6789", "536-90-4399"]
NO_SSNS = [
    "000-12-3456", "666-12-3456", "900-12-3456", "999-12-3456", "123-00-4567", "123-45-0000", "000-00-0000",
    "078-05-1120", "219-09-9999", "457-55-5462", "987-65-4321",
]  # fmt: skip

PHONES = [
    "+14155552671", "+1 415 555 2671", "+1 (415) 555-2671", "+1-415-555-2671", "+1.415.555.2671", "(415) 555-2671",
    "(415)555-2671", "415-555-2671", "415.555.2671", "415 555 2671", "1-415-555-2671", "1 (415) 555-2671",
    "+44 20 7946 0958", "+44 (0)20 7946 0958", "+442079460958", "020 7946 0958", "(020) 7946 0958", "07700 900123",
    "0121 496 0000", "+49 30 123456", "+49 (0) 30 1234567", "0049 30 1234567", "030/1234567", "0171-1234567",
    "01 42 68 53 00", "01.42.68.53.00", "+33 1 42 68 53 00", "+39 06 12345678", "+81-3-1234-5678", "03-1234-5678",
    "+91 98765 43210", "+86 138 0013 8000", "+351 912 345 678", "+41 44 668 18 00", "+353 1 234 5678",
    "(415-555-2671).",
]  # fmt: skip
NO_PHONES = [
    "+1 415 555 267", "+1 415 555 26711", "+1 115 555 2671", "+1 415 155 2671", "+1 411 555 2671", "+1 491 555 2671",
    "115-555-2671", "415-155-2671", "415-511-2671", "415-555.2671", "415/555/2671", "+999 123 456 78", "+0 123 456 789",
    "+33 1 42 68 53 0", "00 142 685 300", "0049-301", "+1234567.89", "-41.5552671", "192.168.100.200", "2026-11-20",
    "20.11.2026", "01.02.2003", "01-02-2003 12", "0-306-40615-2", "978-3-16-148410-0", "12345-6789", "1234-567-890",
    "000-000-0000", "0100-01-01 00", "1.234.567.890", "+49.123456789", "(415 555-2671",
]  # fmt: skip

MAILS = [
    "a@b.cc", "first.last@example.com", "first+tag@sub.example.co.uk", "o'brien@example.ie", "x_1%y@example.org",
    "USER@EXAMPLE.COM", "a@1and1.de", "a@b.museum", "a@xn--bcher-kva.example", "a@example.xn--p1ai", "1@2.io",
    f"{'l' * 64}@example.com", f"a@{'d' * 63}.com", f"{'l' * 64}@{'d' * 63}.{'d' * 63}.{'d' * 57}.com",
    "'a@example.com'", "a@example.com.", "mailto:a@example.com", "<a@example.com>", "jörg@example.com",
]  # fmt: skip
NO_MAILS = [
    "a@b", "a@b.c", "a@localhost", ".a@example.com", "a.@example.com", "a..b@example.com", "a@example..com",
    "a@-example.com", "a@example-.com", "a@.example.com", "a@1.2.3.4", "a@example.c0m", "+@example.com",
    "a@b@example.com",
    f"{'l' * 65}@example.com", f"a@{'d' * 64}.com", f"{'l' * 64}@{'d' * 63}.{'d' * 63}.{'d' * 58}.com",
    "git@github.com:owner/name.git", "postgres://user:secret@db.example.com/main", "ssh://git@example.com",
    "icon@2x.png", "lodash@4.17.21", "image@sha256.JSON",
]  # fmt: skip


def counted(count: CountMatches, texts: Sequence[str], pattern: Pattern) -> list[tuple[int, int]]:
    """
    Return candidates and valid ones of each text.

    Many are counted by one call, since the oracle's takes milliseconds: text i counts 8**i times, and what is counted
    of it is the digit i of the sum.
    """
    found: list[tuple[int, int]] = []
    for at in range(0, len(texts), TEXTS_MAX):
        part = texts[at : at + TEXTS_MAX]
        weights = 8 ** np.arange(len(part), dtype=np.int64)
        row = count(pa.array(part, pa.large_string()), weights)[pattern]
        candidates, valid = (row[member] // weights % 8 for member in (CANDIDATES, VALID))
        found += zip(candidates.tolist(), valid.tolist(), strict=True)
    return found


@KERNELS
def test_published_cards_are_valid_and_no_single_wrong_digit_is(count: CountMatches) -> None:
    numbers = [card for card in CARDS if card not in UNKNOWN_NETWORK]
    assert counted(count, numbers, Pattern.CREDIT_CARD) == [(1, 1)] * len(numbers)
    wrong = [
        f"{number[:at]}{digit}{number[at + 1 :]}"
        for number in numbers
        for at in range(len(number))
        for digit in "0123456789"
        if digit != number[at]
    ]
    rows = count(pa.array(wrong, pa.large_string()), None)
    assert rows[Pattern.CREDIT_CARD].tolist() == [9 * sum(map(len, numbers)), 0, 0, 0]


@KERNELS
def test_numbers_that_pass_luhn_and_are_no_networks_are_no_cards(count: CountMatches) -> None:
    numbers = [*UNKNOWN_NETWORK, "0000000000000000", "490154203237518", "8901260123456789011"]
    digits, lengths = read(pa.array([number.encode() for number in numbers], pa.large_binary()), width=19)
    assert passes_luhn(digits, lengths).tolist() == [True] * len(numbers)
    assert counted(count, numbers, Pattern.CREDIT_CARD) == [(1, 0)] * len(numbers)


@KERNELS
def test_cards_are_read_in_their_groups(count: CountMatches) -> None:
    numbers = [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "3782 822463 10005",
        "3056-930902-5904",
        "(4111111111111111).",
    ]
    assert counted(count, numbers, Pattern.CREDIT_CARD) == [(1, 1)] * len(numbers)


@KERNELS
def test_what_is_part_of_something_longer_is_no_card(count: CountMatches) -> None:
    texts = [
        "4111-1111 1111-1111", "4111  1111 1111 1111", "41111111 11111111", "x4111111111111111", "4111111111111111_",
        "1-4111111111111111", "/4111111111111111/", "411111111111", "41111111111111111111",
    ]  # fmt: skip
    assert counted(count, texts, Pattern.CREDIT_CARD) == [(0, 0)] * len(texts)


@KERNELS
def test_the_registrys_ibans_are_valid_and_no_single_wrong_character_is(count: CountMatches) -> None:
    fours = [" ".join(number[at : at + 4] for at in range(0, len(number), 4)) for number in IBANS]
    assert counted(count, IBANS, Pattern.IBAN) == [(1, 1)] * len(IBANS)
    assert counted(count, [f"to {number}." for number in fours], Pattern.IBAN) == [(1, 1)] * len(IBANS)
    wrong = [
        f"{number[:at]}{'1' if number[at] == '0' else '0'}{number[at + 1 :]}"
        for number in IBANS
        for at in range(4, len(number))
    ]
    rows = count(pa.array(wrong, pa.large_string()), None)
    assert rows[Pattern.IBAN].tolist() == [sum(len(number) - 4 for number in IBANS), 0, 0, 0]


@KERNELS
def test_other_countries_lengths_and_groups_are_no_ibans(count: CountMatches) -> None:
    texts = [
        "XX89370400440532013000", "DE8937040044053201300", "DE893704004405320130000", "de89370400440532013000",
        "xDE89370400440532013000", "DE89370400440532013000_", "DE89 37040044 0532 0130 00",
        "DE89  3704 0044 0532 0130 00", "DE89-3704-0044-0532-0130-00", "DEA9370400440532013000",
    ]  # fmt: skip
    assert counted(count, texts, Pattern.IBAN) == [(0, 0)] * len(texts)


def test_the_remainder_is_that_of_the_number_itself() -> None:
    characters, lengths = read(pa.array([number.encode() for number in IBANS], pa.large_binary()), width=34)
    found = remainders(rearranged(characters, lengths), lengths)
    expected = [int("".join(str(int(c, 36)) for c in number[4:] + number[:4])) % 97 for number in IBANS]
    assert found.tolist() == expected == [1] * len(IBANS)
    assert np.array_equal(lengths, [len(number) for number in IBANS])


@KERNELS
@pytest.mark.parametrize(("texts", "valid"), [(SSNS, 1), (NO_SSNS, 0)], ids=["issued", "never issued"])
def test_social_security_numbers_have_areas_groups_and_serials_that_exist(
    count: CountMatches, texts: list[str], valid: int
) -> None:
    assert counted(count, texts, Pattern.US_SSN) == [(1, valid)] * len(texts)
    bare = [text.replace("-", "").replace(" ", "") for text in texts]
    assert counted(count, bare, Pattern.US_SSN_BARE) == [(1, valid)] * len(texts)
    assert counted(count, bare, Pattern.US_SSN) == [(0, 0)] * len(texts)


@KERNELS
def test_what_is_part_of_something_longer_is_no_social_security_number(count: CountMatches) -> None:
    texts = [
        "123-45-67890", "1123-45-6789", "123-45-6789-0", "0-123-45-6789", "123-45 6789", "123.45.6789", "a123-45-6789",
        "123-45-6789a", "123-45-6789_", "id/123-45-6789", "\uff11\uff12\uff13-45-6789",
    ]  # fmt: skip
    assert counted(count, texts, Pattern.US_SSN) == [(0, 0)] * len(texts)


@KERNELS
def test_phones_are_valid_as_they_are_written(count: CountMatches) -> None:
    assert counted(count, PHONES, Pattern.PHONE) == [(1, 1)] * len(PHONES)
    assert counted(count, [f"call {text}, please" for text in PHONES], Pattern.PHONE) == [(1, 1)] * len(PHONES)


@KERNELS
def test_dates_decimals_addresses_and_wrong_numbers_are_no_phones(count: CountMatches) -> None:
    assert [valid for _, valid in counted(count, NO_PHONES, Pattern.PHONE)] == [0] * len(NO_PHONES)


@KERNELS
def test_a_phone_without_punctuation_is_counted_as_bare(count: CountMatches) -> None:
    texts = ["4155552671", "14155552671", "01711234567", "912345678", "491711234567", "13800138000"]
    assert counted(count, texts, Pattern.PHONE_BARE) == [(1, 1)] * len(texts)
    assert counted(count, texts, Pattern.PHONE) == [(0, 0)] * len(texts)


@KERNELS
def test_a_phone_without_a_trunk_zero_is_counted_as_bare(count: CountMatches) -> None:
    texts = ["612 345 678", "12 34 56 78", "333 123 4567", "22 123 45 67"]
    assert counted(count, texts, Pattern.PHONE) == [(1, 0)] * len(texts)
    assert counted(count, texts, Pattern.PHONE_BARE) == [(1, 1)] * len(texts)


@KERNELS
def test_dates_and_other_groups_are_not_counted_as_bare(count: CountMatches) -> None:
    texts = ["612-345-678", "2026-11-20", "12345 67890", "012 345 67", "6 12 34 56 78"]
    assert counted(count, texts, Pattern.PHONE_BARE) == [(0, 0)] * len(texts)


@KERNELS
def test_digits_that_are_no_phone_are_not_counted_as_bare(count: CountMatches) -> None:
    texts = ["1155552671", "0011234567", "123456789", "21045678901", "00000000000"]
    assert counted(count, texts, Pattern.PHONE_BARE) == [(1, 0)] * len(texts)


@KERNELS
def test_addresses_of_mail_are_valid(count: CountMatches) -> None:
    assert counted(count, MAILS, Pattern.EMAIL) == [(1, 1)] * len(MAILS)


@KERNELS
def test_what_is_no_address_of_mail_is_not_valid(count: CountMatches) -> None:
    assert [valid for _, valid in counted(count, NO_MAILS, Pattern.EMAIL)] == [0] * len(NO_MAILS)
