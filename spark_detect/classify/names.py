# SPDX-License-Identifier: Apache-2.0
"""
Which column names indicate personal data.

A name is split into words (`customerEMail_2`, `KREDITKARTEN-NR`, `Téléphone`), in lower case and without diacritics. It
indicates a kind if it contains one of the kind's terms and no word that changes what the term means:

- After the term, only words that keep its meaning: `email_address`, `phone_number_home`, `correo_cliente`. So
  `phone_model`, `iban_country` and `email_sent_at` indicate nothing.
- Before it, no word that negates it (`is_email`) or makes it something else (`gift_card_number`).

In doubt a name indicates nothing: a missed name lowers the confidence, a wrong one raises a false alarm.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from ledger.format.events import DetectionKind

TERMS: Final = {
    DetectionKind.US_SSN: (
        "ssn", "ssns", "us ssn", "social security", "social security number", "social security no", "social sec",
        "soc sec", "ss number", "ss num", "ss no", "socialsecurity", "ssnumber", "socsec",
    ),
    DetectionKind.EMAIL: (
        "email", "emails", "e mail", "e mails", "mail", "mails", "correo", "correo electronico", "courriel",
        "adresse electronique", "posta elettronica", "indirizzo mail", "endereco eletronico", "epost", "e post",
        "eposta", "e posta", "sahkoposti", "mailadres", "postfach mail", "почта", "эл почта", "邮箱", "电子邮件",
        "メール", "メールアドレス", "이메일",
    ),
    DetectionKind.CREDIT_CARD: (
        "credit card", "credit cards", "creditcard", "debit card", "debitcard", "payment card", "bank card",
        "card number", "card numbers", "card num", "card no", "card nr", "cardnumber", "cardnum", "cardno", "card",
        "cards", "ccn", "kartennummer", "cc number", "cc num", "cc no", "cc nr", "ccnumber", "ccnum", "ccno", "pan",
        "primary account number", "kreditkarte", "kreditkarten", "kreditkartennummer", "carte bancaire",
        "carte credit", "carte de credit", "numero carte", "numero de carte", "tarjeta credito", "tarjeta de credito",
        "numero tarjeta", "numero de tarjeta", "cartao credito", "cartao de credito", "numero cartao",
        "numero do cartao", "carta credito", "carta di credito", "numero carta", "numero di carta",
        "creditcardnummer", "kredietkaart", "kreditkort", "kortnummer", "信用卡", "クレジットカード", "номер карты",
    ),
    DetectionKind.PHONE: (
        "phone", "phones", "telephone", "tel", "telefon", "telefonnummer", "telefono", "telefone", "telefoon",
        "telefoonnummer", "telemovel", "mobile", "mobil", "mobilnummer", "mobiltelefon", "movil", "celular",
        "cellulare", "cell phone", "cellphone", "cell number", "cell no", "handy", "handynummer", "rufnummer", "msisdn",
        "fax", "faxnummer", "contact number", "contact no", "numero portable", "gsm", "puhelin", "puhelinnumero",
        "telefonszam", "телефон", "мобильный", "电话", "手机", "手机号", "電話", "電話番号", "携帯", "전화번호",
    ),
    DetectionKind.IBAN: ("iban", "ibans", "international bank account number"),
}  # fmt: skip
"""By kind: the terms for it, in several languages; each is one word or several."""

KEEPS_MEANING: Final = frozenset(
    word
    for line in (
        "address addresses addr adress adresse adresses adres direccion indirizzo endereco",
        "number numbers num nums no nos nr nbr numero numeros nummer nummern digits",
        "value values text string key element",
        "raw plain clean cleaned normalized normalised formatted e164 full old new current previous original",
        "home work private personal business office main primary secondary alternate alternative other backup recovery",
        "mobile cell landline fixed day daytime evening night emergency billing shipping us usa eu uk",
        "customer customers client clients cliente kunde kunden user users account holder owner contact contacts",
        "person people employee member patient student guest buyer seller vendor supplier sender recipient",
        "de du des del della do da di la le el of for the a b c x y column col field",
    )
    for word in line.split()
)
"""Words that may follow a term without changing its meaning; so may digits."""

WRITTEN_TOGETHER: Final = frozenset(
    {"address", "addr", "adresse", "adres", "number", "numbers", "num", "no", "nr", "nummer", "numero"}
)
"""Words that may be joined to the end of a term: `phonenumber`."""

CHANGES_MEANING: Final = {
    DetectionKind.US_SSN: frozenset[str](),
    DetectionKind.EMAIL: frozenset({"snail", "voice"}),
    DetectionKind.CREDIT_CARD: frozenset(
        word
        for line in (
            "gift loyalty member membership bonus club library access id identity sim sd memory graphics",
            "key smart metro transit index flash playing wild note notes red yellow green",
            "video network sound health insurance fuel business report score game trading post rate time travel rail",
        )
        for word in line.split()
    ),
    DetectionKind.PHONE: frozenset({"head", "ear", "micro", "mega"}),
    DetectionKind.IBAN: frozenset[str](),
}
"""Words that change the meaning of a term right behind them: a gift card is not a credit card."""

DENIES: Final = frozenset(
    word
    for line in (
        "is has have no not non without can allow allows opt valid invalid verified confirmed",
        "hash hashed masked encrypted redacted token tokenized anonymized md5 sha1 sha256 count num number total",
    )
    for word in line.split()
)
"""Words that negate, hide or count, anywhere before a term: `has_phone`, `hashed_email`, `num_emails`."""

_WORD: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_GENERIC: Final = KEEPS_MEANING | {"item", "items", "list", "array", "entry"}


@lru_cache(maxsize=4096)
def kinds_of_name(path: str) -> frozenset[DetectionKind]:
    """
    Return the kinds of personal data that a column's path (names joined by full stops) indicates.

    The last name decides. If all its words are generic (`phone.number`, `emails.element`), the name before it is put in
    front of it, and so on.
    """
    parts = [words(part) for part in path.split(".")]
    name_words = parts.pop() if parts else ()
    while parts and all(word in _GENERIC or word.isdigit() for word in name_words):
        name_words = (*parts.pop(), *name_words)
    return frozenset(kind for kind in DetectionKind if _indicates(kind, name_words))


def words(name: str) -> tuple[str, ...]:
    """
    Split a name into words, in lower case and without diacritics: `customerEMail_2` into customer, e, mail and 2.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    plain = unicodedata.normalize("NFC", plain)  # composes Hangul syllables, which NFKD has taken apart
    return tuple(word.casefold() for word in _WORD.findall(_CAMEL.sub("_", plain)))


def _indicates(kind: DetectionKind, name_words: tuple[str, ...]) -> bool:
    name_words = tuple(part for word in name_words for part in _split(kind, word))
    for term in _TERMS[kind]:
        for start in range(len(name_words) - len(term) + 1):
            if name_words[start : start + len(term)] == term and _keeps_meaning(
                kind, before=name_words[:start], after=name_words[start + len(term) :]
            ):
                return True
    return False


def _keeps_meaning(kind: DetectionKind, *, before: tuple[str, ...], after: tuple[str, ...]) -> bool:
    """Return whether a term means the kind with these words before and after it."""
    return (
        all(word in KEEPS_MEANING or word.isdigit() for word in after)
        and not any(word in DENIES for word in before)
        and not (before and before[-1] in CHANGES_MEANING[kind])
    )


def _split(kind: DetectionKind, word: str) -> tuple[str, ...]:
    """Split a word that joins a term and another word: `emailaddress`, `useremail`, `phonenumber`."""
    for term in _TERMS[kind]:
        joined = "".join(term)
        if word.startswith(joined) and word[len(joined) :] in WRITTEN_TOGETHER:
            return (*term, word[len(joined) :])
    return (word.removesuffix("email"), "email") if word.endswith("email") and word != "email" else (word,)


_TERMS: Final = {kind: tuple(words(term) for term in terms) for kind, terms in TERMS.items()}
