# SPDX-License-Identifier: Apache-2.0
"""Names that tell and names that do not, what follows from both witnesses, and counts that add up."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.format.events import DetectionKind
from spark_detect.classify import RULESET, ColumnCounts, ColumnFinding, Pattern, PatternCounts, classify, names
from spark_detect.classify.columns import scan_array
from spark_detect.classify.names import kinds_of_name, words
from spark_detect.classify.ruleset import ruleset_id
from spark_detect.errors import DetectionError

TELLING = {
    DetectionKind.US_SSN: (
        "ssn SSN Ssn customer_ssn ssn_1 employeeSSN us_ssn social_security_number SocialSecurityNo soc_sec person.ssn "
        "patient.identity.ssn ssn_raw ss_number"
    ),
    DetectionKind.EMAIL: (
        "email EMAIL e_mail eMail E-Mail emails email_address emailAddress emailaddr customer_email useremail "
        "billing_email_2 contact.email emails.element contact.emails.value email_home mail mail_address "
        "correo correo_electronico correo_cliente courriel adresse_electronique sähköposti e-posta "
        "邮箱 メールアドレス почта"
    ),
    DetectionKind.CREDIT_CARD: (
        "card customer_card cards "
        "credit_card credit_card_number CreditCardNo creditcard cc_number ccnum card_number cardNumber CARD_NO pan "
        "payment.card.number debit_card kreditkarte KREDITKARTEN-NR kreditkartennummer carte_bancaire numero_carte "
        "numéro_de_carte tarjeta_de_credito cartão_de_crédito 信用卡 customer_credit_card"
    ),
    DetectionKind.PHONE: (
        "phone PHONE phone_number phoneNumber phonenumber phones homePhone phone_home mobile mobile_number cell_phone "
        "tel Tel. telephone telefon telefonnummer teléfono téléphone telefone_cliente rufnummer handy_nr msisdn fax "
        "contact_number customer.phone.number phones.element emergency_phone 电话 電話番号 телефон 전화번호"
    ),
    DetectionKind.IBAN: "iban IBAN iban_number customer_iban accountIban iban_1 bank.iban ibans.element iban-nr",
}

NOT_TELLING = (
    "id name order_number order_no part_no part_number phone_model phone_type phone_os phone_verified is_phone "
    "has_phone phone_count num_phones number_of_phones mobile_os is_mobile mobile_app headphone headphones microphone "
    "saxophone smartphone_brand cell cell_id cells cellar tel_aviv hotel motel telemetry iban_country ibanez caliban "
    "iban_valid email_count email_sent_at email_verified email_opt_in is_email has_email email_domain email_template "
    "email_subject email_hash hashed_email masked_ssn email_id no_email mailing_list mailing_address mail_stop "
    "mailbox_size voice_mail mailchimp snail_mail card_type credit_card_type card_color gift_card_number "
    "loyalty_card_no sim_card_number report_card graphics_card_number id_card_number cc cc_list ccy account_number "
    "account_no credit credit_limit creditor discard_number scorecard panel pancake company pan_id ssn_hash "
    "ssn_last_updated session lesson assn ssnippet tax_id customer_id country serial imei vin uuid value number "
    "element key address text"
)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, text in TELLING.items() for name in text.split()])
def test_a_name_tells_of_one_kind(kind: DetectionKind, name: str) -> None:
    assert kinds_of_name(name) == {kind}


@pytest.mark.parametrize("name", [*NOT_TELLING.split(), "", ".", "..", "_", "1", "é", "a b", "\0", "email.sent_at"])
def test_a_name_that_means_something_else_tells_nothing(name: str) -> None:
    assert kinds_of_name(name) == frozenset()


@given(st.text(max_size=30))
def test_any_name_can_be_read(name: str) -> None:
    assert all(words(name))
    assert kinds_of_name(name) <= frozenset(DetectionKind)


def test_names_are_cut_at_case_digits_and_marks() -> None:
    assert words("customerEMail_2") == ("customer", "e", "mail", "2")
    assert words("HTTPServer-Téléphone  No.3b") == ("http", "server", "telephone", "no", "3", "b")


def test_every_term_is_indicated_by_itself() -> None:
    for kind, terms in names.TERMS.items():
        assert [term for term in terms if kind not in kinds_of_name(term.replace(" ", "_"))] == []


MAILS = ["a@example.com", "b@example.com", None, "c@example.com"]


@pytest.mark.parametrize(
    ("name", "values", "percents"),
    [
        ("email", MAILS, {DetectionKind.EMAIL: 92}),
        ("note", MAILS, {DetectionKind.EMAIL: 55}),
        ("email", ["none", "of", "these"], {DetectionKind.EMAIL: 65}),
        ("email", [1, 2, 3], {DetectionKind.EMAIL: 65}),
        ("ssn", [536904399, 536904398], {DetectionKind.US_SSN: 65}),
        ("phone", MAILS, {DetectionKind.EMAIL: 55, DetectionKind.PHONE: 65}),
        ("note", ["none", "of", "these"], {}),
        ("email", [None, None], {}),
        ("email", [], {}),
    ],
)
def test_confidence_is_65_for_a_name_55_for_values_and_92_for_both(
    name: str, values: list[object], percents: dict[DetectionKind, int]
) -> None:
    found = classify(name, scan_array(pa.array(values)))
    assert {finding.kind: finding.confidence_percent for finding in found} == percents


def test_a_finding_says_how_many_of_how_many() -> None:
    found = classify("email", scan_array(pa.array([*MAILS, "d@example", "", None])))
    assert found == (ColumnFinding(kind=DetectionKind.EMAIL, confidence_percent=92, matches=3, values=4),)


def test_a_value_that_matches_twice_is_one_match() -> None:
    found = classify("ssn", scan_array(pa.array(["536-90-4399, 536904399"])))
    assert [(finding.matches, finding.values) for finding in found] == [(1, 1)]


counts = st.builds(
    ColumnCounts,
    values=st.integers(0, 2**40),
    patterns=st.tuples(
        *(
            st.builds(
                PatternCounts,
                candidates=st.integers(0, 2**40),
                valid=st.integers(0, 2**40),
                cells=st.integers(0, 2**40),
                spread=st.integers(0, 2**32 - 1),
            )
            for _ in Pattern
        )
    ),
)


@given(counts, counts, counts)
def test_counts_add_up_in_any_order(a: ColumnCounts, b: ColumnCounts, c: ColumnCounts) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ColumnCounts() == a


@given(counts)
def test_counts_travel_as_integers(found: ColumnCounts) -> None:
    ints = found.to_ints()
    assert ColumnCounts.from_ints(ints) == found
    assert len(ints) == 29
    assert all(type(number) is int and 0 <= number < 2**63 for number in ints)


@pytest.mark.parametrize("ints", [(), (0,) * 28, (0,) * 30, (-1, *(0,) * 28)])
def test_counts_of_another_shape_are_refused(ints: tuple[int, ...]) -> None:
    with pytest.raises(DetectionError, match="29 counts"):
        ColumnCounts.from_ints(ints)


def test_a_rule_that_changes_makes_another_ruleset(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ruleset_id() == RULESET
    monkeypatch.setattr(names, "DENIES", names.DENIES | {"never"})
    assert ruleset_id() != RULESET


def test_whoever_judges_counts_loads_neither_compiler_nor_spark() -> None:
    code = "import sys, spark_detect.classify; print(*({'numba', 'pyarrow', 'pyspark', 'psycopg'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b""


def test_whoever_scans_loads_no_spark() -> None:
    code = "import sys, spark_detect.classify.columns; print(*({'pyspark', 'psycopg', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b""
