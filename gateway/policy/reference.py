# SPDX-License-Identifier: Apache-2.0
"""
What policies may name, in words: each variable, field, function and macro, with its type and an example.

Guarantee: these are exactly the names of `vocabulary.py` and `cel/check.py`, and each example compiles (a test compares
them). `docs/policy-variables.md` is made from here. The child process that judges does not load this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class Described(NamedTuple):
    """
    A name, the type of its value, what it is, and a policy as an example.

    The members of a list's elements are named with `[]`, as in `table.columns[].name`. Of a function, `name` is its
    name alone, and `type` says how it is called and what it gives.
    """

    name: str
    type: str
    words: str
    example: str


TABLE: Final[Sequence[Described]] = (
    Described("exists", "bool", "false before it is created, and after it is dropped", "table.exists || result.exists"),
    Described("uuid", "text", "of the table or view", "!table.exists || !result.exists || result.uuid == table.uuid"),
    Described("location", "text", "the folder of its files", "result.location.startsWith('s3://lake/')"),
    Described("format_version", "int", "of the Iceberg specification", "!result.exists || result.format_version >= 2"),
    Described("columns", "list", "of the current schema, without those within others", "size(result.columns) <= 200"),
    Described("columns[].id", "int", "field id", "result.columns.all(c, c.id > 0)"),
    Described("columns[].name", "text", "name", "result.columns.exists(c, c.name == 'tenant_id')"),
    Described(
        "columns[].type",
        "text",
        "of a primitive column its type, of another one its JSON",
        "result.columns.all(c, c.type != 'float')",
    ),
    Described("columns[].required", "bool", "holds no nulls", "result.columns.exists(c, c.required)"),
    Described("columns[].doc", "text", "comment, or empty", "result.columns.all(c, c.doc != '')"),
    Described("fields", "list", "the columns at every level", "size(result.fields) <= 1000"),
    Described(
        "fields[].path",
        "text",
        "name from the top; `tags.element` in a list, `m.key` and `m.value` in a map",
        "result.fields.all(f, f.path != 'address.phone')",
    ),
    Described("fields[].id", "int", "field id", "result.fields.all(f, f.id < 10000)"),
    Described("fields[].name", "text", "last part of the path", "!result.fields.exists(f, f.name == 'ssn')"),
    Described(
        "fields[].type",
        "text",
        "its type; `struct`, `list` or `map` if others are within it",
        "result.fields.all(f, f.type != 'map')",
    ),
    Described("fields[].required", "bool", "holds no nulls", "result.fields.exists(f, f.required)"),
    Described("fields[].doc", "text", "comment, or empty", "result.fields.all(f, size(f.doc) < 500)"),
    Described("partition_fields", "list", "of the current spec", "!result.exists || size(result.partition_fields) > 0"),
    Described("partition_fields[].name", "text", "name", "result.partition_fields.all(p, p.name.matches('^[a-z_]+$'))"),
    Described(
        "partition_fields[].transform",
        "text",
        "such as `day` or `bucket[16]`",
        "result.partition_fields.exists(p, p.transform == 'day')",
    ),
    Described(
        "partition_fields[].source_id", "int", "id of its column", "result.partition_fields.all(p, p.source_id > 0)"
    ),
    Described(
        "partition_fields[].source",
        "text",
        "path of its column; empty if that is gone",
        "result.partition_fields.all(p, p.source != '')",
    ),
    Described("sort_fields", "list", "of the current sort order", "size(result.sort_fields) < 5"),
    Described(
        "sort_fields[].transform", "text", "as of a partition", "result.sort_fields.all(s, s.transform == 'identity')"
    ),
    Described("sort_fields[].direction", "text", "`asc` or `desc`", "result.sort_fields.all(s, s.direction == 'asc')"),
    Described(
        "sort_fields[].null_order",
        "text",
        "`nulls-first` or `nulls-last`",
        "result.sort_fields.all(s, s.null_order == 'nulls-last')",
    ),
    Described("sort_fields[].source_id", "int", "id of its column", "result.sort_fields.all(s, s.source_id > 0)"),
    Described("sort_fields[].source", "text", "path of its column", "result.sort_fields.all(s, s.source != 'note')"),
    Described("properties", "map of text", "of the table or view", "'owner' in result.properties"),
    Described(
        "refs",
        "map",
        "branches and tags by name, each with `type` and `snapshot_id`",
        "result.refs.all(name, result.refs[name].type == 'branch')",
    ),
    Described("ref_list", "list", "branches and tags with what they keep", "size(result.ref_list) < 50"),
    Described("ref_list[].name", "text", "name", "result.ref_list.all(r, r.name != 'tmp')"),
    Described("ref_list[].type", "text", "`branch` or `tag`", "result.ref_list.filter(r, r.type == 'tag').size() < 20"),
    Described(
        "ref_list[].snapshot_id", "text", "the snapshot that it names", "result.ref_list.all(r, r.snapshot_id != '')"
    ),
    Described(
        "ref_list[].timestamp",
        "text (time)",
        "when that snapshot was made",
        "result.ref_list.all(r, age(r.timestamp) < duration('8760h'))",
    ),
    Described(
        "ref_list[].max_ref_age_ms",
        "int",
        "0: not set",
        "result.ref_list.all(r, r.type != 'tag' || r.max_ref_age_ms > 0)",
    ),
    Described(
        "ref_list[].max_snapshot_age_ms",
        "int",
        "0: not set",
        "result.ref_list.all(r, r.max_snapshot_age_ms == 0 || r.max_snapshot_age_ms >= 604800000)",
    ),
    Described(
        "ref_list[].min_snapshots_to_keep",
        "int",
        "0: not set",
        "result.ref_list.all(r, r.min_snapshots_to_keep != 1)",
    ),
    Described("snapshot", "map", "the current snapshot", "result.snapshot != null"),
    Described(
        "snapshot.id", "text", "empty if there is none", "!table.exists || !result.exists || result.snapshot.id != ''"
    ),
    Described("snapshot.operation", "text", "`append`, `overwrite`, …", "result.snapshot.operation != 'overwrite'"),
    Described(
        "snapshot.summary",
        "map of text",
        "what the writer says of it",
        "!('added-records' in result.snapshot.summary) || int(result.snapshot.summary['added-records']) < 1000000",
    ),
    Described("snapshots", "list", "all that the metadata has", "size(result.snapshots) < 10000"),
    Described(
        "snapshots[].id", "text", "id", "result.snapshots.exists(s, s.id == result.snapshot.id) || !result.exists"
    ),
    Described("snapshots[].operation", "text", "as of `snapshot`", "result.snapshots.all(s, s.operation == 'append')"),
    Described(
        "snapshots[].summary", "map of text", "as of `snapshot`", "result.snapshots.all(s, 'operation' in s.summary)"
    ),
    Described("snapshots[].parent_id", "text", "empty if it has none", "result.snapshots.exists(s, s.parent_id == '')"),
    Described(
        "snapshots[].timestamp",
        "text (time)",
        "when it was made",
        "result.snapshots.all(s, age(s.timestamp) < duration('61320h'))",
    ),
    Described(
        "snapshots[].referenced",
        "bool",
        "a branch or a tag names it, or one that came after it",
        "result.snapshots.all(s, s.referenced)",
    ),
    Described("statistics", "list", "the files of statistics", "size(result.statistics) < 100"),
    Described("statistics[].kind", "text", "`table` or `partition`", "result.statistics.all(s, s.kind == 'table')"),
    Described("statistics[].snapshot_id", "text", "its snapshot", "result.statistics.all(s, s.snapshot_id != '')"),
    Described(
        "statistics[].path",
        "text",
        "where the file is",
        "result.statistics.all(s, s.path.startsWith(result.location))",
    ),
    Described("statistics[].size_bytes", "int", "its size", "result.statistics.all(s, s.size_bytes < 1073741824)"),
    Described(
        "statistics[].blob_types",
        "list of text",
        "types of its blobs; of partitions none",
        "result.statistics.all(s, s.blob_types.all(b, b.startsWith('apache-')))",
    ),
    Described(
        "queries",
        "map of text",
        "of a view: its SQL by dialect",
        "result.queries.all(d, !result.queries[d].contains('*'))",
    ),
)
"""The fields of `table` and of `result`."""

COMMIT: Final[Sequence[Described]] = (
    Described("catalog", "text", "alias of the catalog", "commit.catalog == 'lake'"),
    Described("namespace", "list of text", "levels of the namespace", "commit.namespace[0] != 'finance'"),
    Described(
        "name", "text", "of the table or view; empty for a namespace", "commit.name.matches('^[a-z][a-z0-9_]*$')"
    ),
    Described("kind", "text", "`table`, `view` or `namespace`", "commit.kind == 'table'"),
    Described(
        "operation", "text", "`table.create`, `table.commit`, `table.drop`, …", "commit.operation != 'table.drop'"
    ),
    Described("actions", "list of text", "in Nessie's words", "!('META_SET_LOCATION' in commit.actions)"),
    Described("purge", "bool", "the files of what is dropped are to be deleted", "!commit.purge"),
    Described("updates", "list", "of the request, as it was sent", "commit.updates.all(u, u.action != 'set-location')"),
    Described(
        "requirements",
        "list",
        "of the request, as it was sent",
        "commit.requirements.all(r, r.type.startsWith('assert-'))",
    ),
    Described("snapshots", "list", "those that it adds", "size(commit.snapshots) <= 10"),
    Described("snapshots[].id", "text", "id", "commit.snapshots.all(s, s.id != table.snapshot.id)"),
    Described("snapshots[].operation", "text", "`append`, …", "commit.snapshots.all(s, s.operation == 'append')"),
    Described(
        "snapshots[].summary",
        "map of text",
        "what the writer says",
        "commit.snapshots.all(s, 'operation' in s.summary)",
    ),
    Described(
        "added_columns",
        "list as `fields`",
        "new field ids; all of a created table",
        "commit.added_columns.all(c, c.doc != '')",
    ),
    Described(
        "removed_columns",
        "list as `fields`",
        "field ids that are gone; all of a dropped table",
        "commit.operation == 'table.drop' || size(commit.removed_columns) == 0",
    ),
    Described(
        "changed_columns",
        "list as `fields`",
        "other path, type, doc or requiredness under the same id",
        "size(commit.changed_columns) == 0",
    ),
    Described("changed_columns[].old_path", "text", "before", "commit.changed_columns.all(c, c.path == c.old_path)"),
    Described("changed_columns[].old_type", "text", "before", "commit.changed_columns.all(c, c.type == c.old_type)"),
    Described(
        "changed_columns[].old_required",
        "bool",
        "before",
        "commit.changed_columns.all(c, c.old_required || !c.required)",
    ),
    Described(
        "changed_columns[].old_doc", "text", "before", "commit.changed_columns.all(c, c.old_doc == '' || c.doc != '')"
    ),
    Described(
        "removed_snapshots",
        "list as `table.snapshots`",
        "those that it takes out of the metadata, or to which no branch or tag leads any more; "
        "of a dropped table all if it is purged, else none",
        "commit.removed_snapshots.all(s, age(s.timestamp) >= duration('168h'))",
    ),
    Described(
        "removed_snapshots[].kept",
        "bool",
        "still in the metadata, for later maintenance",
        "commit.removed_snapshots.all(s, s.kept)",
    ),
)
PRINCIPAL: Final[Sequence[Described]] = (
    Described("actor", "text", "pseudonym in the log", "principal.actor != ''"),
    Described("sub", "text", "identity", "principal.sub.endsWith('@acme.example')"),
    Described("email", "text", "verified address of a provider, or empty", "principal.email != 'ada@acme.example'"),
    Described("roles", "list of text", "of the key, token or certificate", "'data-eng' in principal.roles"),
    Described("source", "text", "`api_key`, `jwt` or `mtls`", "principal.source != 'jwt'"),
    Described("groups", "list of text", "all that a provider's token names", "!('interns' in principal.groups)"),
    Described(
        "attributes",
        "map of text",
        "the claims that `attribute_claims` of the provider names",
        "!('country' in principal.attributes) || principal.attributes.country == 'DE'",
    ),
)
REQUEST: Final[Sequence[Described]] = (
    Described("method", "text", "of HTTP", "request.method != 'DELETE'"),
    Described("path", "text", "as it was sent", "request.path.startsWith('/v1/')"),
    Described("client", "text", "what the client says it is", "!request.client.contains('Trino')"),
    Described(
        "time",
        "text (time)",
        "when it is judged, which the record has, too",
        "timestamp(request.time).getDayOfWeek() < 6",
    ),
    Described(
        "address",
        "text",
        "IP address of the client, behind trusted proxies the one that they name; empty if it is not known",
        "request.address.startsWith('127.') || request.address.startsWith('10.')",
    ),
)
FINDINGS: Final[Sequence[Described]] = (
    Described(
        "columns",
        "list",
        "the newest finding of each column and kind, also of columns that are gone since",
        "findings.columns.all(f, f.confidence < 90)",
    ),
    Described("columns[].column", "text", "path of the column then", "findings.columns.all(f, f.column != 'note')"),
    Described(
        "columns[].field_id",
        "int",
        "its field id",
        "findings.columns.all(f, !result.fields.exists(c, c.id == f.field_id))",
    ),
    Described(
        "columns[].kind",
        "text",
        "`us_ssn`, `email`, `credit_card`, `phone` or `iban`",
        "!findings.columns.exists(f, f.kind == 'us_ssn')",
    ),
    Described(
        "columns[].confidence",
        "int",
        "in percent: 65 for the name alone, 55 for values alone, 92 for both",
        "findings.columns.all(f, f.confidence < 60)",
    ),
    Described("columns[].matches", "int", "values that matched", "findings.columns.all(f, f.matches < 10)"),
    Described(
        "columns[].values",
        "int",
        "values that were looked at; none is null",
        "findings.columns.all(f, f.values > 0)",
    ),
    Described("columns[].snapshot", "text", "the snapshot", "findings.columns.all(f, f.snapshot != table.snapshot.id)"),
    Described(
        "columns[].found_at",
        "text (time)",
        "when it was recorded",
        "findings.columns.all(f, age(f.found_at) < duration('720h'))",
    ),
    Described(
        "columns[].state",
        "text",
        "`open`, `confirmed` or `dismissed`: what somebody has said of it; what was dismissed is `open` again once a "
        "scan is surer of it",
        "findings.columns.all(f, f.state != 'open')",
    ),
    Described(
        "scanned_at",
        "text (time)",
        "when the last complete scan was recorded; empty if there is none",
        "findings.scanned_at != '' || !table.exists || table.snapshot.id == ''",
    ),
    Described(
        "scanned_snapshot", "text", "the snapshot of that scan", "findings.scanned_snapshot == table.snapshot.id"
    ),
    Described(
        "as_of",
        "int",
        "the entries of the log before this index are counted; the record of the decision has it, too",
        "findings.as_of >= 0",
    ),
)
LINEAGE: Final[Sequence[Described]] = (
    Described(
        "upstream",
        "list",
        "the tables that it was made from, over at most 10 hops, nearest first",
        "lineage.upstream.all(t, t.catalog == commit.catalog)",
    ),
    Described("upstream[].catalog", "text", "alias of the catalog", "lineage.upstream.all(t, t.catalog != 'raw')"),
    Described(
        "upstream[].namespace",
        "list of text",
        "levels of the namespace",
        "lineage.upstream.all(t, t.namespace != ['tmp'])",
    ),
    Described(
        "upstream[].name", "text", "the name that it has now, or had last", "lineage.upstream.all(t, t.name != 'x')"
    ),
    Described("upstream[].uuid", "text", "empty if no commit has told it", "lineage.upstream.all(t, t.uuid != '')"),
    Described(
        "upstream[].hops", "int", "1 for what it was made from directly", "lineage.upstream.all(t, t.hops <= 10)"
    ),
    Described(
        "upstream[].kinds",
        "list",
        "the kinds of personal data that detection has found in it",
        "lineage.upstream.all(t, size(t.kinds) == 0)",
    ),
    Described(
        "upstream[].kinds[].kind",
        "text",
        "as in `findings`",
        "!lineage.upstream.exists(t, t.kinds.exists(k, k.kind == 'us_ssn'))",
    ),
    Described(
        "upstream[].kinds[].confidence",
        "int",
        "the highest, in percent",
        "!lineage.upstream.exists(t, t.kinds.exists(k, k.confidence >= 90))",
    ),
    Described(
        "classified",
        "list",
        "the same tables in the same order, with how each is classified now",
        "lineage.classified.all(t, t.known)",
    ),
    Described(
        "classified[].catalog",
        "text",
        "as in `upstream`",
        "lineage.classified.all(t, t.catalog != 'raw')",
    ),
    Described(
        "classified[].namespace",
        "list of text",
        "as in `upstream`",
        "lineage.classified.all(t, t.namespace != ['tmp'])",
    ),
    Described("classified[].name", "text", "as in `upstream`", "lineage.classified.all(t, t.name != 'x')"),
    Described("classified[].uuid", "text", "as in `upstream`", "lineage.classified.all(t, t.uuid != '')"),
    Described("classified[].hops", "int", "as in `upstream`", "lineage.classified.all(t, t.hops <= 10)"),
    Described(
        "classified[].known",
        "bool",
        "false if it cannot be told how it is classified",
        "!lineage.classified.exists(t, !t.known && t.hops == 1)",
    ),
    Described(
        "classified[].classifications",
        "list of text",
        "what is said anywhere in the table, each once: the first word after `classification:` in the doc of a column, "
        "and the values of the property `classification` and of those whose names begin with `classification.`",
        "!lineage.classified.exists(t, 'restricted' in t.classifications)",
    ),
    Described(
        "cut",
        "bool",
        "it was made from more, further away, which is left out",
        "!lineage.cut",
    ),
    Described(
        "as_of",
        "int",
        "the lineage in entries of the log before this index is counted",
        "lineage.as_of >= 0",
    ),
)

VARIABLES: Final[Sequence[Described]] = (
    *(each._replace(name=f"table.{each.name}") for each in TABLE),
    *(each._replace(name=f"commit.{each.name}") for each in COMMIT),
    *(each._replace(name=f"principal.{each.name}") for each in PRINCIPAL),
    *(each._replace(name=f"request.{each.name}") for each in REQUEST),
    *(each._replace(name=f"findings.{each.name}") for each in FINDINGS),
    *(each._replace(name=f"lineage.{each.name}") for each in LINEAGE),
)
"""All but those of `result`, which are those of `table`."""

OF_TABLES: Final[Sequence[Described]] = (
    Described(
        "has_column",
        "has_column(table, text) → bool",
        "has a column with this path",
        "has_column(result, 'address.city')",
    ),
    Described(
        "column_type",
        "column_type(table, text) → text",
        "type as in `fields`; empty if there is none",
        "column_type(result, 'amount') != 'double'",
    ),
    Described(
        "has_partition",
        "has_partition(table, text, text?) → bool",
        "a partition field has this column as its source, and this transform (`bucket` stands for `bucket[16]`); "
        "without one, any but `void`",
        "has_partition(result, 'ordered_at', 'day')",
    ),
    Described(
        "classification_satisfied",
        "classification_satisfied(table, findings, int?) → bool",
        "each column with a finding of at least this confidence (0 without one) has a classification: "
        "`classification:` in its doc or in that of a column around it, or a property of the table such as "
        "`classification.address.email`. Columns are found by field id, so one that is gone needs none",
        "classification_satisfied(result, findings, 80)",
    ),
    Described(
        "is_narrowed",
        "is_narrowed(table, result) → bool",
        "both exist, and values lose their place: a column is gone, an optional one is required, or a type is one to "
        "which Iceberg does not promote (int to long, float to double, decimal to more digits, date to timestamp or "
        "timestamp_ns, unknown to all). By field ids: another name is no loss",
        "!is_narrowed(table, result)",
    ),
    Described(
        "region",
        "region(table or text or map) → text",
        "region in the bucket's or host's name; else the property `client.region`, `s3.region` or `region`, which who "
        "commits can set; else empty",
        "region(result.location) == 'eu-central-1'",
    ),
    Described(
        "age",
        "age(time) → duration",
        "from then to `request.time`; below zero for a time after it. For policies alone",
        "commit.removed_snapshots.all(s, age(s.timestamp) > duration('24h'))",
    ),
)
STANDARD: Final[Sequence[Described]] = (
    Described("size", "size(x), x.size() → int", "of a text, bytes, a list or a map", "size(commit.actions) > 0"),
    Described("has", "has(x.f) → bool", "a map has this key", "has(result.properties.owner)"),
    Described("type", "type(x) → type", "type of a value", "type(commit.name) == string"),
    Described("dyn", "dyn(x)", "x itself", "dyn(commit.name) != null"),
    Described("bool", "bool(text) → bool", "of `true` or `false`", "bool('true')"),
    Described("int", "int(x) → int", "of a number, a text or a time (seconds)", "int('7') == 7"),
    Described("uint", "uint(x) → uint", "of a number or a text", "uint(7) == 7u"),
    Described("double", "double(x) → double", "of a number or a text", "double('1.5') > 1.0"),
    Described("string", "string(x) → text", "of a scalar", "string(7) == '7'"),
    Described("bytes", "bytes(text) → bytes", "in UTF-8", "bytes('a') == b'a'"),
    Described(
        "timestamp",
        "timestamp(text) → time",
        "of RFC 3339",
        "timestamp(request.time) > timestamp('2026-01-01T00:00:00Z')",
    ),
    Described("duration", "duration(text) → duration", "in h, m, s, ms", "duration('1h') == duration('60m')"),
    Described(
        "contains", "x.contains(y) → bool", "a text a part, or a list an element", "!commit.name.contains('tmp')"
    ),
    Described("startsWith", "text.startsWith(text) → bool", "begins with", "commit.name.startsWith('o')"),
    Described("endsWith", "text.endsWith(text) → bool", "ends with", "!commit.name.endsWith('_old')"),
    Described(
        "matches",
        "text.matches(pattern), matches(text, pattern) → bool",
        "somewhere; patterns are RE2's",
        "commit.name.matches('^[a-z_]+$')",
    ),
    Described(
        "getFullYear",
        "time.getFullYear() → int",
        "in UTC, as all of these",
        "timestamp(request.time).getFullYear() >= 2026",
    ),
    Described("getMonth", "time.getMonth() → int", "0 to 11", "timestamp(request.time).getMonth() != 11"),
    Described("getDate", "time.getDate() → int", "1 to 31", "timestamp(request.time).getDate() < 32"),
    Described("getDayOfMonth", "time.getDayOfMonth() → int", "0 to 30", "timestamp(request.time).getDayOfMonth() < 31"),
    Described(
        "getDayOfWeek", "time.getDayOfWeek() → int", "0 (Sunday) to 6", "timestamp(request.time).getDayOfWeek() != 0"
    ),
    Described("getDayOfYear", "time.getDayOfYear() → int", "0 to 365", "timestamp(request.time).getDayOfYear() < 366"),
    Described(
        "getHours", "time.getHours(), duration.getHours() → int", "hours", "timestamp(request.time).getHours() < 24"
    ),
    Described("getMinutes", "x.getMinutes() → int", "minutes", "timestamp(request.time).getMinutes() < 60"),
    Described("getSeconds", "x.getSeconds() → int", "seconds", "timestamp(request.time).getSeconds() < 60"),
    Described(
        "getMilliseconds",
        "x.getMilliseconds() → int",
        "milliseconds",
        "timestamp(request.time).getMilliseconds() < 1000",
    ),
)
MACROS: Final[Sequence[Described]] = (
    Described(
        "all",
        "x.all(name, condition) → bool",
        "holds for each element, or key",
        "result.columns.all(c, c.name != 'ssn')",
    ),
    Described("exists", "x.exists(name, condition) → bool", "for at least one", "result.columns.exists(c, c.required)"),
    Described(
        "exists_one",
        "x.exists_one(name, condition) → bool",
        "for exactly one",
        "result.columns.exists_one(c, c.id == 1)",
    ),
    Described(
        "filter",
        "x.filter(name, condition) → list",
        "those for which it holds",
        "size(result.columns.filter(c, c.required)) > 0",
    ),
    Described(
        "map",
        "x.map(name, value), x.map(name, condition, value) → list",
        "a value for each",
        "!('ssn' in result.columns.map(c, c.name))",
    ),
)
EXTENSIONS: Final[Sequence[Described]] = (
    Described("charAt", "text.charAt(int) → text", "the character there", "commit.name.charAt(0) != '_'"),
    Described(
        "indexOf",
        "text.indexOf(text, int?) → int",
        "first place, from an offset; -1",
        "commit.name.indexOf('tmp') == -1",
    ),
    Described(
        "lastIndexOf",
        "text.lastIndexOf(text, int?) → int",
        "last place, from an offset; -1",
        "commit.name.lastIndexOf('_') < 20",
    ),
    Described("join", "list.join(text?) → text", "the texts in one", "commit.namespace.join('.') != 'tmp'"),
    Described(
        "lowerAscii", "text.lowerAscii() → text", "A to Z in lower case", "commit.name.lowerAscii() == commit.name"
    ),
    Described("upperAscii", "text.upperAscii() → text", "a to z in upper case", "commit.name.upperAscii() != 'TMP'"),
    Described(
        "replace",
        "text.replace(text, text, int?) → text",
        "all, or the first so many",
        "commit.name.replace('_', '') != ''",
    ),
    Described(
        "split",
        "text.split(text, int?) → list of text",
        "all parts, or at most so many",
        "commit.name.split('_')[0] != 'tmp'",
    ),
    Described(
        "substring", "text.substring(int, int?) → text", "from there, to before there", "commit.name.substring(1) != ''"
    ),
    Described("trim", "text.trim() → text", "without blanks at both ends", "commit.name.trim() == commit.name"),
    Described("reverse", "text.reverse() → text", "in the other order", "commit.name.reverse() != ''"),
    Described(
        "strings.quote", "strings.quote(text) → text", "in quotes, with escapes", "strings.quote(commit.name) != ''"
    ),
    Described(
        "regex.extract",
        "regex.extract(text, pattern) → text",
        "what first matches, or its one group; an error if nothing does",
        "regex.extract(commit.name, '^[a-z]+') != 'tmp'",
    ),
    Described(
        "regex.extractAll",
        "regex.extractAll(text, pattern) → list of text",
        "all that matches",
        "regex.extractAll(commit.name, '[0-9]+').size() < 3",
    ),
    Described(
        "regex.replace",
        "regex.replace(text, pattern, text, int?) → text",
        r"with `\1` for a group; all, or the first so many",
        "regex.replace(commit.name, '[0-9]+', '') != ''",
    ),
    Described(
        "math.greatest",
        "math.greatest(x, …) → number",
        "of numbers, or of a list",
        "math.greatest(1, size(commit.actions)) < 50",
    ),
    Described(
        "math.least",
        "math.least(x, …) → number",
        "of numbers, or of a list",
        "math.least(result.format_version, 2) <= 2",
    ),
    Described("math.abs", "math.abs(x) → number", "without its sign", "math.abs(-1) == 1"),
    Described("math.sign", "math.sign(x) → number", "-1, 0 or 1", "math.sign(size(commit.actions)) >= 0"),
    Described("math.ceil", "math.ceil(double) → double", "up", "math.ceil(1.2) == 2.0"),
    Described("math.floor", "math.floor(double) → double", "down", "math.floor(1.8) == 1.0"),
    Described("math.round", "math.round(double) → double", "halves away from zero", "math.round(1.5) == 2.0"),
    Described("math.trunc", "math.trunc(double) → double", "towards zero", "math.trunc(-1.5) == -1.0"),
    Described("math.isNaN", "math.isNaN(double) → bool", "is no number", "!math.isNaN(1.5)"),
    Described("math.isInf", "math.isInf(double) → bool", "is infinite", "!math.isInf(1.5)"),
    Described("math.isFinite", "math.isFinite(double) → bool", "is neither", "math.isFinite(1.5)"),
)
"""Of the extension libraries of cel-go; a text they give has at most 1,048,576 characters, a list 100,000 elements."""

FUNCTIONS: Final[Sequence[Described]] = (*OF_TABLES, *STANDARD, *MACROS, *EXTENSIONS)
