# SPDX-License-Identifier: Apache-2.0
"""
Checks the inputs of the operations in `application.py`: all formats and bounds, each refused with its field.

The bounds keep a control plane small enough to be folded and evaluated for every commit. An event is at most 64,512
bytes, so that anything accepted here fits into one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.catalogs.glue_options import GLUE, GLUE_ENDPOINT, GLUE_OPTIONS, check_glue_options
from gateway.catalogs.login_options import LOGIN_OPTIONS, TOKEN_URI, check_login_options
from gateway.catalogs.places import parse_place
from gateway.catalogs.registry import BUILTIN, LOOK_ALIKES, LOOK_ALIKES_ALLOWED, REST
from gateway.catalogs.upstream_files import LOCAL_FILES, LOCAL_FILES_ALLOWED
from gateway.catalogs.upstreams import SEQUENTIAL, TRANSACTIONS
from gateway.catalogs.urls import URI, URI_OVERRIDES, is_plain_url, place_of, uris_of
from gateway.confusables import are_alike
from gateway.errors import BadRequestError, LookAlikeNameError, UnprocessableError
from gateway.identifiers import check_new_name
from gateway.policy.messages import check_message
from gateway.policy.text import EXPRESSION_BYTES_MAX
from ledger.format import canonical
from ledger.format.events import LINEAGE_CYCLES, POLICY_REVIEW, OnCycle, PolicyReview
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError

MESSAGE_LENGTH_MAX: Final = 500
REASON_LENGTH_MAX: Final = 500
NAME_LENGTH_MAX: Final = 200
IDENTITY_LENGTH_MAX: Final = 320
"""The longest mail address."""
ROLES_MAX: Final = 32
EXPIRY_MAX: Final = timedelta(days=3_653)
"""How long a key with an end may be in force: ten years."""
OVERLAP: Final = timedelta(days=1)
"""How long a key that is rotated stays in force beside the new one, unless told otherwise."""
OVERLAP_MAX: Final = timedelta(days=30)
KEYS_OF_HOLDER_MAX: Final = 20
"""Keys of one actor in force at a time: a holder who needs more has lost track of them."""
OPTIONS_MAX: Final = 32
OPTION_LENGTH_MAX: Final = 400
IN_FORCE_MAX: Final = 1_000
"""Objects of one kind that a tenant may have in force."""

KNOWN_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    LINEAGE_CYCLES: (OnCycle.REFUSE.value, OnCycle.KEEP.value),
    POLICY_REVIEW: (PolicyReview.NONE.value, PolicyReview.REQUIRED.value),
}
"""The settings of a tenant, each with its values; the first is the default."""

KNOWN_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    BUILTIN: frozenset({LOOK_ALIKES, "location"}),
    REST: frozenset(
        {
            URI,
            URI_OVERRIDES,
            "warehouse",
            "location",
            LOCAL_FILES,
            TRANSACTIONS,
            "s3.endpoint",
            "s3.region",
            "s3.access-key-id",
            "s3.secret-access-key",
            "webhook-secret",
        }
    )
    | LOGIN_OPTIONS,
    GLUE: GLUE_OPTIONS,
}
"""The options of each kind of catalog; of `rest`, `uri` is required, of `glue` those of `glue_options.REQUIRED`."""
LOOK_ALIKES_REFUSED: Final = "refused"
"""The default of the option."""

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_LOCATION = re.compile(
    r"(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\x00-\x20\x7f?#\\]*)?|file:///[^\x00-\x20\x7f?#\\]*)"
)
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,99}")
_OPTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|credentials?|(secret-access|private|account|api)-key|client-certificate"
    r"|certificate-authority)$",
    re.IGNORECASE,
)
_SECRET_REFERENCE = re.compile(r"secret:[a-z0-9][a-z0-9_-]{0,62}")
_USERINFO = re.compile(r"://[^/?#\s]*@")


def check_id(text: object, *, field: str = "id") -> str:
    """
    Return `text` if it can be an id, which keys, paths and decisions contain for ever.

    Raises:
        BadRequestError: if it is not 1 to 63 of a-z, 0-9, `_` and `-`, beginning with a letter or digit.
    """
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise BadRequestError(
            f"expected 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit, found {text!r:.80}",
            field=field,
        )
    return text


def check_setting(setting_id: str, value: str) -> None:
    """
    Check that a tenant has such a setting, and that the setting may have that value.

    Raises:
        BadRequestError: otherwise; says which there are.
    """
    if setting_id not in KNOWN_SETTINGS:
        raise BadRequestError(f"expected one of {sorted(KNOWN_SETTINGS)}, found {setting_id!r:.80}", field="id")
    if value not in KNOWN_SETTINGS[setting_id]:
        raise BadRequestError(f"expected one of {list(KNOWN_SETTINGS[setting_id])}, found {value!r:.80}", field="value")


def check_text(text: object, *, field: str, length_max: int) -> str:
    """
    Return `text` if it has 1 to `length_max` characters and, line breaks and tabs aside, no control characters.

    Raises:
        BadRequestError: otherwise.
    """
    if not isinstance(text, str) or not text.strip():
        raise BadRequestError(f"expected a text that is not empty, found {text!r:.80}", field=field)
    if len(text) > length_max:
        raise BadRequestError(f"expected at most {length_max} characters, found {len(text)}", field=field)
    if found := _CONTROL.search(text):
        raise BadRequestError(f"expected no control characters, found U+{ord(found[0]):04X}", field=field)
    return text


def check_roles(roles: Iterable[object]) -> tuple[str, ...]:
    """
    Return `roles` sorted, each once.

    Raises:
        BadRequestError: if there are more than 32, or one is malformed.
    """
    names: set[str] = set()
    if isinstance(roles, str):
        raise BadRequestError("expected a list of roles, found one text", field="roles")
    for role in roles:
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            raise BadRequestError(
                f"expected 1 to 100 of letters, digits and _ . : / @ -, found {role!r:.80}", field="roles"
            )
        names.add(role)
    if len(names) > ROLES_MAX:
        raise BadRequestError(f"expected at most {ROLES_MAX} roles, found {len(names)}", field="roles")
    return tuple(sorted(names))


def check_policy_texts(*, expression: str, message: str) -> None:
    """
    Check what an author writes of a policy: lengths and characters, and that the message can be filled.

    Raises:
        BadRequestError: if one of them is empty, too long, or has control characters, or the message has a brace or a
            field that it cannot have.
    """
    check_text(message, field="message", length_max=MESSAGE_LENGTH_MAX)
    check_message(message)
    check_expression(expression)


def check_expression(expression: str) -> None:
    """
    Check the length and the characters of an expression of a policy or access rule.

    It counts as an entry of the log holds it, which has a policy's examples and scope beside it: as JSON in UTF-8.

    Raises:
        BadRequestError: if it is empty, too long, or has control characters.
    """
    check_text(expression, field="expression", length_max=EXPRESSION_BYTES_MAX)
    size_bytes = len(expression.encode("utf-8", "surrogatepass")) + sum(map(expression.count, '"\\\n\r\t'))
    if size_bytes > EXPRESSION_BYTES_MAX:
        words = f"expected at most {EXPRESSION_BYTES_MAX} bytes, a quote, backslash or line end as two"
        raise BadRequestError(f"{words}, found {size_bytes}", field="expression")


def check_reason(reason: str) -> str:
    """
    Return the reason of an edit, which may be empty.

    Raises:
        BadRequestError: if it is too long, or holds control characters.
    """
    return check_text(reason, field="reason", length_max=REASON_LENGTH_MAX) if reason else ""


def parse_expiry(text: str, *, field: str = "expires_at") -> datetime:
    """
    Parse a time (RFC 3339, as in `2027-01-31T12:00:00Z`).

    Raises:
        BadRequestError: if it is malformed.
    """
    try:
        if _RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper())
    except ValueError:
        pass  # the 31st of February
    raise BadRequestError(
        f"expected a time with its offset from UTC, as in 2027-01-31T12:00:00Z, found {text!r:.80}", field=field
    )


def format_expiry(expires_at: datetime | None) -> str | None:
    """Return the text of a key's expiry; None for a key that does not expire."""
    return None if expires_at is None else canonical.format_time(expires_at)


def check_expiry(expires_at: datetime | None, *, now: datetime, field: str = "expires_at") -> datetime | None:
    """
    Return a time to come in UTC, such as the expiry of a new key; None for none.

    Raises:
        BadRequestError: if it is not an aware time, has passed, or is more than ten years away.
    """
    if expires_at is None:
        return None
    if expires_at.utcoffset() is None:
        raise BadRequestError("expected a time with its offset from UTC, found one without", field=field)
    try:
        end = expires_at.astimezone(UTC)
    except OverflowError:
        end = None
    if end is None or not now < end <= now + EXPIRY_MAX:
        raise BadRequestError(
            f"expected a time from now on and at most {EXPIRY_MAX.days:,} days away, found {expires_at.isoformat()}",
            field=field,
        )
    return end


def check_overlap(overlap: timedelta) -> timedelta:
    """
    Return how long a rotated key stays in force.

    Raises:
        BadRequestError: if that is negative, or more than `OVERLAP_MAX`.
    """
    if not timedelta(0) <= overlap <= OVERLAP_MAX:
        raise BadRequestError(
            f"expected 0 to {OVERLAP_MAX // timedelta(hours=1)} hours, found {overlap / timedelta(hours=1):g}",
            field="overlap",
        )
    return overlap


def check_holder_room(in_force: int) -> None:
    """
    Check that the holder of `in_force` keys may have one more.

    Raises:
        UnprocessableError: if they have `KEYS_OF_HOLDER_MAX` already.
    """
    if in_force >= KEYS_OF_HOLDER_MAX:
        raise UnprocessableError(
            f"expected at most {KEYS_OF_HOLDER_MAX} keys of one holder in force, found {in_force}: delete those that "
            "nobody uses, or wait until those that were rotated end"
        )


def check_outlived(end: datetime | None, *, by: datetime | None) -> None:
    """
    Check that a key that expires at `end` does not outlive the key or token it is issued with, which ends at `by`.

    None is never.

    Raises:
        BadRequestError: if it would: a key could prolong itself for ever.
    """
    if by is not None and (end is None or end > by):
        found = "none" if end is None else format_expiry(end)
        raise BadRequestError(
            f"expected an end no later than {format_expiry(by)}, when the key or token ends that this one is issued "
            f"with, found {found}: ask for an earlier one, or let the operator issue it",
            field="expires_at",
        )


def check_options(options: Mapping[str, object]) -> dict[str, str]:
    """
    Return a catalog's options. The log has them for ever, so a secret is named as `secret:<id>` instead.

    Raises:
        BadRequestError: if one is malformed, or looks like a secret.
    """
    if len(options) > OPTIONS_MAX:
        raise BadRequestError(f"expected at most {OPTIONS_MAX} options, found {len(options)}", field="options")
    checked: dict[str, str] = {}
    for name, value in options.items():
        if not _OPTION_NAME.fullmatch(name):
            raise BadRequestError(
                f"expected names of letters, digits, '.', '_' and '-', found {name!r:.80}", field="options"
            )
        field = f"options.{name}"
        if _SECRET_NAME.search(name):
            # Refused before any message could repeat the value.
            if not isinstance(value, str) or not _SECRET_REFERENCE.fullmatch(value):
                raise BadRequestError("expected 'secret:<id>': a secret itself must not stand in the log", field=field)
        elif isinstance(value, str) and _USERINFO.search(value):
            raise BadRequestError("expected a URL without user and password, found one with", field=field)
        checked[name] = check_text(value, field=field, length_max=OPTION_LENGTH_MAX)
    return checked


def check_catalog_options(kind: str, options: Mapping[str, object], egress: EgressRules) -> dict[str, str]:
    """
    Return the options of a catalog of `kind`, which must be one of those of that kind.

    A URL whose host is an address is checked against `egress` here, for an early error. A host name is resolved and
    checked only when the gateway connects to it.

    Raises:
        BadRequestError: if one is malformed or unknown, or a required one is missing.
    """
    checked = check_options(options)
    known = KNOWN_OPTIONS[kind]
    for name in checked:
        if name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "no options"
            raise BadRequestError(f"a catalog of kind {kind} takes {expected}", field=f"options.{name}")
    if kind == REST and URI not in checked:
        raise BadRequestError("expected the http or https URL of the catalog, found none", field="options.uri")
    _check_urls(checked, egress)
    if kind == REST:
        check_login_options(checked)
    if kind == GLUE:
        check_glue_options(checked)
    if "s3.region" in checked and not _REGION.fullmatch(checked["s3.region"]):
        # It becomes part of a host name.
        raise BadRequestError(
            f"expected letters, digits, '_' and '-', found {checked['s3.region']!r:.80}", field="options.s3.region"
        )
    if "location" in checked and (not _LOCATION.fullmatch(checked["location"]) or "/.." in checked["location"]):
        raise BadRequestError(
            f"expected s3://bucket/… or file:///…, found {checked['location']!r:.80}", field="options.location"
        )
    if "location" in checked:
        parse_place(checked["location"], field="options.location")
    _check_choices(checked)
    if ("s3.access-key-id" in checked) != ("s3.secret-access-key" in checked):
        raise BadRequestError(
            "expected s3.access-key-id and s3.secret-access-key together", field="options.s3.access-key-id"
        )
    return checked


def _check_choices(checked: Mapping[str, str]) -> None:
    if checked.get(TRANSACTIONS, SEQUENTIAL) != SEQUENTIAL:
        raise BadRequestError(
            f"expected {SEQUENTIAL}, found {checked[TRANSACTIONS]!r:.80}", field=f"options.{TRANSACTIONS}"
        )
    if LOCAL_FILES in checked and (
        checked[LOCAL_FILES] != LOCAL_FILES_ALLOWED or not checked.get("location", "").startswith("file:///")
    ):
        raise BadRequestError(
            f"expected {LOCAL_FILES_ALLOWED}, with a location file:///…, found {checked[LOCAL_FILES]!r:.80}",
            field=f"options.{LOCAL_FILES}",
        )
    if checked.get(LOOK_ALIKES, LOOK_ALIKES_ALLOWED) not in {LOOK_ALIKES_ALLOWED, LOOK_ALIKES_REFUSED}:
        raise BadRequestError(
            f"expected {LOOK_ALIKES_ALLOWED} or {LOOK_ALIKES_REFUSED}, found {checked[LOOK_ALIKES]!r:.80}",
            field=f"options.{LOOK_ALIKES}",
        )


def _check_urls(options: Mapping[str, str], egress: EgressRules) -> None:
    for name in (URI, TOKEN_URI, GLUE_ENDPOINT, "s3.endpoint"):
        if name in options:
            _check_url(options[name], egress, field=f"options.{name}")
    for url in uris_of(options):
        _check_url(url, egress, field=f"options.{URI_OVERRIDES}")


def _check_url(url: str, egress: EgressRules, *, field: str) -> None:
    if not is_plain_url(url):
        raise BadRequestError(
            f"expected an http or https URL without user, query and fragment, found {url!r:.80}", field=field
        )
    try:
        egress.check_literal(*place_of(url))
    except AddressRefusedError as error:
        raise BadRequestError(str(error), field=field) from error


def check_tenant_name(name: str, known: Iterable[str]) -> None:
    """
    Check the name of a new tenant.

    Raises:
        BadRequestError: if it is malformed, or does not read as what it is (`check_new_name`).
        LookAlikeNameError: if it is confusable with another tenant's.
    """
    check_text(name, field="name", length_max=NAME_LENGTH_MAX)
    check_new_name(name, field="name")
    check_unlike(name, known, field="name")


def check_unlike(name: str, in_force: Iterable[str], *, field: str) -> None:
    """
    Check that `name` is not confusable with another name in force; other code refuses an equal one.

    Raises:
        LookAlikeNameError: if it is.
    """
    if any(other != name and are_alike(name, other) for other in in_force):
        raise LookAlikeNameError(name, field=field)


def check_room(in_force: Collection[object], what: str, *, more: int = 1) -> None:
    """
    Check that there may be `more` of `what`.

    Raises:
        UnprocessableError: if there would be more than `IN_FORCE_MAX`.
    """
    over = len(in_force) + more - IN_FORCE_MAX
    if over > 0:
        raise UnprocessableError(f"expected at most {IN_FORCE_MAX} {what} in force: delete {over} first")
