# SPDX-License-Identifier: Apache-2.0
"""
Which names of columns tell of personal data.

A name is cut into words (`customerEMail_2`, `KREDITKARTEN-NR`, `Téléphone`), folded to lower case without marks. It is
indicative if it contains a kind's term and nothing that turns it into something else: behind the term only words that
still mean the thing itself (`email_address`, `phone_number_home`, `correo_cliente`), before it none that denies it or
makes it another thing (`is_email`, `gift_card_number`). So `phone_model`, `iban_country`, `email_sent_at` and
`order_number` indicate nothing. In doubt a name is not indicative: a missed one costs confidence, a wrong one cries
wolf.
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
"""What the thing is called, as words."""

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
"""What may stand behind a term without making it another thing; digits may as well."""

WRITTEN_TOGETHER: Final = frozenset(
    {"address", "addr", "adresse", "adres", "number", "numbers", "num", "no", "nr", "nummer", "numero"}
)
"""What is met behind a term in one word: `phonenumber`."""

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
"""What makes a term another thing if it stands right before it: a gift card is no credit card."""

DENIES: Final = frozenset(
    word
    for line in (
        "is has have no not non without can allow allows opt valid invalid verified confirmed",
        "hash hashed masked encrypted redacted token tokenized anonymized md5 sha1 sha256 count num number total",
    )
    for word in line.split()
)
"""What denies, hides or counts, wherever it stands before the term: `has_phone`, `hashed_email`, `num_emails`."""

_WORD: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_GENERIC: Final = KEEPS_MEANING | {"item", "items", "list", "array", "entry"}


@lru_cache(maxsize=4096)
def kinds_of_name(path: str) -> frozenset[DetectionKind]:
    """
    Return the kinds that a column's path tells of.

    Its last part speaks. Where that says nothing by itself (`phone.number`, `emails.element`), the part before it does,
    and so on.
    """
    parts = [words(part) for part in path.split(".")]
    name_words = parts.pop() if parts else ()
    while parts and all(word in _GENERIC or word.isdigit() for word in name_words):
        name_words = (*parts.pop(), *name_words)
    return frozenset(kind for kind in DetectionKind if _indicates(kind, name_words))


def words(name: str) -> tuple[str, ...]:
    """
    Return the words of a name, lower case and without marks: `customerEMail_2` has customer, e, mail and 2.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    plain = unicodedata.normalize("NFC", plain)  # composes what is no mark but a syllable
    return tuple(word.casefold() for word in _WORD.findall(_CAMEL.sub("_", plain)))


def _indicates(kind: DetectionKind, name_words: tuple[str, ...]) -> bool:
    name_words = tuple(part for word in name_words for part in _parted(kind, word))
    for term in _TERMS[kind]:
        for start in range(len(name_words) - len(term) + 1):
            if name_words[start : start + len(term)] == term and _stays(
                kind, before=name_words[:start], behind=name_words[start + len(term) :]
            ):
                return True
    return False


def _stays(kind: DetectionKind, *, before: tuple[str, ...], behind: tuple[str, ...]) -> bool:
    return (
        all(word in KEEPS_MEANING or word.isdigit() for word in behind)
        and not any(word in DENIES for word in before)
        and not (before and before[-1] in CHANGES_MEANING[kind])
    )


def _parted(kind: DetectionKind, word: str) -> tuple[str, ...]:
    """Cut a word that was written together: `emailaddress` and `useremail`, `phonenumber`."""
    for term in _TERMS[kind]:
        joined = "".join(term)
        if word.startswith(joined) and word[len(joined) :] in WRITTEN_TOGETHER:
            return (*term, word[len(joined) :])
    return (word.removesuffix("email"), "email") if word.endswith("email") and word != "email" else (word,)


_TERMS: Final = {kind: tuple(words(term) for term in terms) for kind, terms in TERMS.items()}
