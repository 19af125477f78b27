# SPDX-License-Identifier: Apache-2.0
"""
The JSON API of AWS Glue: databases and tables as requests and answers have them, and what its errors mean. Pure.

Guarantee: an error counts as "nothing was done" only if it is one of those that Glue gives instead of doing it. Any
other is no answer, as an answer that is lost: `OperationTimeoutException`, for example, comes with status 400.

Sources: AWS Glue Web API reference (Table, TableInput, Database, DatabaseInput, and the errors of each operation); the
AWS JSON 1.1 protocol (Smithy) for `X-Amz-Target` and `__type`; what makes a table an Iceberg table, and which columns
Glue is told of it, as Apache Iceberg's `GlueTableOperations` and `IcebergToGlueConverter` have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from gateway.catalogs.replies import LOCATION_LENGTH_MAX, Answered, Reply, Unanswered
from gateway.errors import BadRequestError
from gateway.identifiers import Target
from ledger.errors import FormatError
from ledger.format.json_object import parse_object

CONTENT_TYPE: Final = "application/x-amz-json-1.1"
PAGE_SIZE_MAX: Final = 100
"""The most that GetTables and GetDatabases give at once."""
NOT_FOUND: Final = "EntityNotFoundException"
NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
CONFLICT: Final = "CommitFailedException"
"""How the REST specification calls it that another commit was first."""

_OF_SIGNATURES: Final = (
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
    "SignatureDoesNotMatch",
    "InvalidClientTokenId",
)
_REFUSALS: Final[Mapping[str, tuple[int, str]]] = {
    "ConcurrentModificationException": (409, CONFLICT),
    "AlreadyExistsException": (409, "AlreadyExistsException"),
    NOT_FOUND: (404, NO_TABLE),
    "AccessDeniedException": (403, "ForbiddenException"),
    "InvalidInputException": (400, "BadRequestException"),
    "ValidationException": (400, "BadRequestException"),
    "ResourceNumberLimitExceededException": (400, "BadRequestException"),
    "ThrottlingException": (429, "TooManyRequestsException"),
    **dict.fromkeys(_OF_SIGNATURES, (401, "NotAuthorizedException")),
}
"""Errors that mean that nothing was done, of Glue and of what checks signatures before it: status and type in REST."""

_NAME = re.compile(r"[a-z0-9_-]{1,255}")
"""
Glue folds names to lower case. The name `Orders` would reach the table `orders`, past the access rules for it, so only
names that stand for themselves are known here.
"""
_TABLE_INPUT: Final = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)
"""Members of a Table that UpdateTable takes back; what it is not given, it removes."""
_DATABASE_INPUT: Final = ("Name", "CreateTableDefaultPermissions", "TargetDatabase")
"""Members of a Database that UpdateDatabase takes back, besides those that are properties of a namespace."""
_COMMENT: Final = "comment"
_LOCATION: Final = "location"
_COMMENT_SIZE_BYTES_MAX: Final = 255
_TYPE_LENGTH_MAX: Final = 32 * 1024
"""A quarter of what Glue takes, in bytes."""
_TYPE_DEPTH_MAX: Final = 100
_OTHER_TYPE: Final = "string"
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "binary": "binary",
}
"""Iceberg's types as Hive calls them; all others are `string` there."""


def is_name(text: str) -> bool:
    """
    Return whether a database or a table may have this name here.
    """
    return _NAME.fullmatch(text) is not None


def is_plain(namespace: tuple[str, ...]) -> bool:
    """
    Return whether a namespace may be a database.
    """
    return len(namespace) == 1 and is_name(namespace[0])


def table_members(target: Target) -> dict[str, str]:
    """
    Return the members of a request that name a table.
    """
    return {"DatabaseName": target.namespace[0], "Name": str(target.name)}


def check_name(text: str, *, field: str) -> None:
    """
    Check the name of a new database or table.

    Raises:
        BadRequestError: if Glue would store another one.
    """
    if not is_name(text):
        raise BadRequestError(
            f"expected 1 to 255 of a-z, 0-9, '_' and '-', which Glue keeps as they are, found {text!r:.80}", field=field
        )


def answer_of(reply: Reply, *, missing: str) -> Reply:
    """
    Return what Glue replied to a change as the REST protocol says it: an error that means that nothing was done by its
    status there, and whatever is not clear as no answer. `missing` is the type of the error if something is not there.
    """
    if not isinstance(reply, Answered):
        return reply
    if reply.status == 200 and reply.body.strip() in {b"", b"{}"}:
        return reply  # what changes something answers with an empty body
    name, message = error_of(reply)
    if 400 <= reply.status <= 499 and name in _REFUSALS:
        status, kind = (404, missing) if name == NOT_FOUND else _REFUSALS[name]
        return refusal(status, kind, f"Glue answered {name}: {message}" if message else f"Glue answered {name}")
    return Unanswered(cause=f"Glue answered {reply.status} ({name})" if name else f"Glue answered {reply.status}")


def refusal(status: int, kind: str, message: str) -> Answered:
    """
    Return an error as the REST protocol has it (IcebergErrorResponse).
    """
    return Answered(status=status, body=orjson.dumps({"error": {"message": message, "type": kind, "code": status}}))


def error_of(answered: Answered) -> tuple[str, str]:
    """
    Return the name and the message of an error of Glue; empty if it is none.
    """
    try:
        error = parse_object(answered.body, what="error")
    except FormatError:
        return "", ""
    name, message = error.get("__type"), error.get("message") or error.get("Message")
    if not isinstance(name, str) or not name.isascii():
        return "", ""
    return name.rpartition("#")[2][:100], message[:300] if isinstance(message, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueTable:
    """
    An Iceberg table as Glue has it: where its metadata file is, the version that an update names, and all of it.
    """

    metadata_location: str
    version: str | None
    table: Mapping[str, Any]


def parse_table(answered: Answered, target: Target) -> GlueTable | None:
    """
    Return the table in the answer of GetTable; None if it is no Iceberg table.

    Raises:
        FormatError: if it is no such answer, or about another table than `target`.
    """
    table = parse_object(answered.body, what="answer").get("Table")
    if not isinstance(table, dict) or table.get("Name") != target.name:
        raise FormatError("answer", expected=f"the table {target.name}", found="another")
    if not is_iceberg(table):
        return None
    location, version = table["Parameters"].get("metadata_location"), table.get("VersionId")
    if not isinstance(location, str) or not 1 <= len(location) <= LOCATION_LENGTH_MAX or not location.isprintable():
        raise FormatError("table", expected="a metadata_location", found=type(location).__name__)
    if version is not None and (not isinstance(version, str) or not 1 <= len(version) <= 255):
        raise FormatError("table", expected="a VersionId", found=type(version).__name__)
    if not isinstance(table.get("StorageDescriptor") or {}, dict):
        raise FormatError("table", expected="a StorageDescriptor", found="another")
    return GlueTable(metadata_location=location, version=version, table=table)


def is_iceberg(table: Any) -> bool:
    """
    Return whether a Table says that it is an Iceberg table.
    """
    parameters = table.get("Parameters") if isinstance(table, dict) else None
    kind = parameters.get("table_type") if isinstance(parameters, dict) else None
    return isinstance(kind, str) and kind.upper() == "ICEBERG"


def parse_names(answered: Answered, member: str) -> tuple[list[Any], str | None]:
    """
    Return the objects in a page (TableList or DatabaseList) and the token of the next one.

    Raises:
        FormatError: if it is no such page.
    """
    page = parse_object(answered.body, what="answer")
    found, token = page.get(member), page.get("NextToken")
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("Name"), str) for one in found
    ):
        raise FormatError("answer", expected=f"a {member} with names", found=type(found).__name__)
    return found, token if isinstance(token, str) and token else None


def table_input(
    name: str, metadata: Mapping[str, Any], *, location: str, before: GlueTable | None = None
) -> dict[str, Any]:
    """
    Return a table as CreateTable or UpdateTable takes it, with the metadata file at `location`; what Glue has of it
    `before` stays, except for the pointer, the columns and the place.
    """
    known = (
        {}
        if before is None
        else {each: before.table[each] for each in _TABLE_INPUT if before.table.get(each) is not None}
    )
    parameters = {**known.get("Parameters", {}), "table_type": "ICEBERG", "metadata_location": location}
    if before is not None:
        parameters["previous_metadata_location"] = before.metadata_location
    descriptor = {**known.get("StorageDescriptor", {}), "Columns": columns(metadata), "Location": metadata["location"]}
    return {
        "TableType": "EXTERNAL_TABLE",
        **known,
        "Name": name,
        "Parameters": parameters,
        "StorageDescriptor": descriptor,
    }


def columns(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return the columns of the current schema as Glue shows them; Iceberg's readers take them from the metadata file.
    """
    current = metadata.get("current-schema-id")
    schemas: Sequence[Mapping[str, Any]] = metadata.get("schemas") or ()
    schema = next((each for each in schemas if each.get("schema-id") == current), None) or metadata.get("schema") or {}
    return [_column(field) for field in schema.get("fields") or () if _is_field(field)]


def _is_field(field: Any) -> bool:
    """Another client may have written the schema: what is no field is left out, since nothing depends on it here."""
    return isinstance(field, Mapping) and isinstance(field.get("name"), str)


def _column(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = hive_type(field.get("type"))
    column = {
        "Name": field["name"],
        "Type": kind if len(kind) <= _TYPE_LENGTH_MAX else _OTHER_TYPE,
        "Parameters": {
            "iceberg.field.id": str(field.get("id")),
            "iceberg.field.optional": "false" if field.get("required") else "true",
            "iceberg.field.current": "true",
        },
    }
    doc = field.get("doc")
    if isinstance(doc, str) and doc.isprintable() and len(doc.encode()) <= _COMMENT_SIZE_BYTES_MAX:
        column["Comment"] = doc
    return column


def hive_type(kind: Any, *, depth: int = 0) -> str:
    """
    Return a type of Iceberg (JSON) as Hive writes it; what is nested deeper than 100 levels as a string.
    """
    if depth > _TYPE_DEPTH_MAX:
        return _OTHER_TYPE

    def inner(each: Any) -> str:
        return hive_type(each, depth=depth + 1)

    match kind:
        case {"type": "struct", "fields": [*fields]}:
            inside = ",".join(f"{field['name']}:{inner(field.get('type'))}" for field in fields if _is_field(field))
            return f"struct<{inside}>"
        case {"type": "list", "element": element}:
            return f"array<{inner(element)}>"
        case {"type": "map", "key": key, "value": value}:
            return f"map<{inner(key)},{inner(value)}>"
        case str() if kind.startswith("decimal"):
            return kind.replace(" ", "")
        case str() if kind.startswith("fixed"):
            return "binary"
        case _:
            return _TYPES.get(str(kind), _OTHER_TYPE)


def parse_database(answered: Answered, name: str) -> Mapping[str, Any]:
    """
    Return the Database in the answer of GetDatabase.

    Raises:
        FormatError: if it is no such answer, or about another database than `name`.
    """
    database = parse_object(answered.body, what="answer").get("Database")
    if not isinstance(database, dict) or database.get("Name") != name:
        raise FormatError("answer", expected=f"the database {name}", found="another")
    parameters = database.get("Parameters") or {}
    if not isinstance(parameters, dict) or not all(isinstance(text, str) for text in parameters.values()):
        raise FormatError("database", expected="Parameters that are texts", found="others")
    return database


def properties_of(database: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the properties of a namespace: `location` and `comment` are members of their own at Glue.
    """
    named = {_LOCATION: database.get("LocationUri"), _COMMENT: database.get("Description")}
    return {
        **(database.get("Parameters") or {}),
        **{name: text for name, text in named.items() if isinstance(text, str) and text},
    }


def database_input(
    name: str, properties: Mapping[str, str], *, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """
    Return a database as CreateDatabase or UpdateDatabase takes it; what is no property stays as it was `before`.
    """
    known = {} if before is None else {each: before[each] for each in _DATABASE_INPUT if before.get(each) is not None}
    named = {"LocationUri": properties.get(_LOCATION), "Description": properties.get(_COMMENT)}
    return {
        **known,
        "Name": name,
        "Parameters": {key: text for key, text in properties.items() if key not in {_LOCATION, _COMMENT}},
        **{member: text for member, text in named.items() if text},
    }


def with_answer(reply: Reply, body: bytes, *, status: int = 200) -> Reply:
    """
    Return the reply with what an engine is answered, if it is a success.
    """
    if isinstance(reply, Answered) and 200 <= reply.status <= 299:
        return replace(reply, status=status, body=body, content_type="application/json")
    return reply
