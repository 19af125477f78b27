# SPDX-License-Identifier: Apache-2.0
"""
The functions of extensions and of tables: what they give, and what they are not defined for.

The known answers of texts and patterns are those that the documentation of cel-go's extensions gives
(github.com/google/cel-go, ext/README.md), unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from gateway.policy.cel import library, tables
from gateway.policy.cel.check import FUNCTIONS, METHODS, check
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.library import ELEMENTS_MAX, TEXT_CHARACTERS_MAX
from gateway.policy.cel.natives import FAILURES
from gateway.policy.cel.parse import parse
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, PolicyNotCompiledError
from gateway.policy.vocabulary import FIELDS_READ, variables_of
from gateway.policy.words import reads

PROGRAMS: Final = Programs()
TRUE: Final = [
    # strings
    "'hello'.charAt(4) == 'o'",
    "'hello'.charAt(5) == ''",
    "'hello mellow'.indexOf('') == 0",
    "'hello mellow'.indexOf('ello') == 1",
    "'hello mellow'.indexOf('jello') == -1",
    "'hello mellow'.indexOf('', 2) == 2",
    "'hello mellow'.indexOf('ello', 2) == 7",
    "'hello mellow'.indexOf('ello', 20) == -1",
    "['hello', 'mellow'].join() == 'hellomellow'",
    "['hello', 'mellow'].join(' ') == 'hello mellow'",
    "[].join() == ''",
    "[].join('/') == ''",
    "'hello mellow'.lastIndexOf('') == 12",
    "'hello mellow'.lastIndexOf('ello') == 7",
    "'hello mellow'.lastIndexOf('jello') == -1",
    "'hello mellow'.lastIndexOf('ello', 6) == 1",
    "'hello mellow'.lastIndexOf('', 3) == 3",
    "'aa'.lastIndexOf('a', 1) == 1",
    "'aa'.lastIndexOf('a', 2) == -1",
    "''.lastIndexOf('a') == -1",
    "'TacoCat'.lowerAscii() == 'tacocat'",
    "'TacoCÆt Xii'.lowerAscii() == 'tacocÆt xii'",
    "'TacoCat'.upperAscii() == 'TACOCAT'",
    "'TacoCæt Xii'.upperAscii() == 'TACOCæT XII'",
    "'hello hello'.replace('he', 'we') == 'wello wello'",
    "'hello hello'.replace('he', 'we', -1) == 'wello wello'",
    "'hello hello'.replace('he', 'we', 1) == 'wello hello'",
    "'hello hello'.replace('he', 'we', 0) == 'hello hello'",
    "'hello hello'.replace('', '_') == '_h_e_l_l_o_ _h_e_l_l_o_'",
    "'hello hello'.replace('h', '') == 'ello ello'",
    "'hello hello hello'.split(' ') == ['hello', 'hello', 'hello']",
    "'hello hello hello'.split(' ', 0) == []",
    "'hello hello hello'.split(' ', 1) == ['hello hello hello']",
    "'hello hello hello'.split(' ', 2) == ['hello', 'hello hello']",
    "'hello hello hello'.split(' ', -1) == ['hello', 'hello', 'hello']",
    "'hello'.split('') == ['h', 'e', 'l', 'l', 'o']",
    "'hello'.split('', 2) == ['h', 'ello']",
    "'hé'.split('', 9) == ['h', 'é']",
    "''.split('') == []",
    "''.split(',') == ['']",
    "'tacocat'.substring(4) == 'cat'",
    "'tacocat'.substring(0, 4) == 'taco'",
    "'ta©o©æT'.substring(2, 6) == '©o©æ'",
    "'tacocat'.substring(7) == ''",
    "' \\u00a0\\u2003trim\\n \\u3000'.trim() == 'trim'",
    "'\\u200btrim'.trim() == '\\u200btrim'",  # no blank to Unicode
    "'gums'.reverse() == 'smug'",
    "'John Smith'.reverse() == 'htimS nhoJ'",
    r"""strings.quote('single-quote with "double quote"') == '"single-quote with \\"double quote\\""'""",
    r"""strings.quote("two escape sequences \a\n") == '"two escape sequences \\a\\n"'""",
    # regex
    "regex.replace('hello world hello', 'hello', 'hi') == 'hi world hi'",
    "regex.replace('banana', 'a', 'x', 0) == 'banana'",
    "regex.replace('banana', 'a', 'x', 1) == 'bxnana'",
    "regex.replace('banana', 'a', 'x', 2) == 'bxnxna'",
    "regex.replace('banana', 'a', 'x', -12) == 'bxnxnx'",
    r"regex.replace('foo bar', '(fo)o (ba)r', r'\2 \1') == 'ba fo'",
    r"regex.replace('id=1', '[0-9]+', r'<\0>\\') == r'id=<1>\'",
    "regex.replace('aé', '', '-') == '-a-é-'",
    r"regex.replace('ac', 'a(b)?c', r'[\1]') == '[]'",
    "regex.extract('hello world', 'hello(.*)') == ' world'",
    "regex.extract('item-A, item-B', 'item-[A-Z]') == 'item-A'",
    "regex.extractAll('id:123, id:456', r'id:\\d+') == ['id:123', 'id:456']",
    "regex.extractAll('id:123, id:456', r'id:(\\d+)') == ['123', '456']",
    "regex.extractAll('id:123, id:456', 'assa') == []",
    "regex.extractAll('a1b', '[a-z]([0-9])?') == ['1']",
    # math
    "math.greatest(-42.0, -21.5, -100.0) == -21.5",
    "math.greatest([1, 2u, 2.5]) == 2.5",
    "math.least(1, 2u) == 1",
    "math.least([-3, 3]) == -3",
    "math.ceil(1.2) == 2.0 && math.ceil(-1.2) == -1.0",
    "math.floor(1.2) == 1.0 && math.floor(-1.2) == -2.0",
    "math.round(1.2) == 1.0 && math.round(1.5) == 2.0 && math.round(-1.5) == -2.0",
    "math.round(0.49999999999999994) == 0.0",
    "math.trunc(-1.3) == -1.0 && math.trunc(1.3) == 1.0",
    "math.abs(-1) == 1 && math.abs(1u) == 1u && math.abs(-1.5) == 1.5",
    "math.sign(-42) == -1 && math.sign(0) == 0 && math.sign(7u) == 1u && math.sign(-1.5) == -1.0",
    "math.isNaN(1.0 / 0.0 - 1.0 / 0.0) && !math.isNaN(1.0)",
    "math.isInf(1.0 / 0.0) && !math.isFinite(1.0 / 0.0) && math.isFinite(1.5)",
    "math.isNaN(math.round(1.0 / 0.0 - 1.0 / 0.0))",
]
UNDEFINED: Final = [
    "'hello'.charAt(6) == ''",
    "'hello'.charAt(-1) == ''",
    "'hello'.charAt(1u) == ''",
    "(1).charAt(1) == ''",
    "'a'.indexOf('a', -1) == -1",
    "'a'.indexOf(1) == -1",
    "['a'].indexOf('') == 0",
    "'a'.lastIndexOf('a', -1) == -1",
    "'a'.lastIndexOf('a', 1.0) == -1",
    "['a', 1].join() == 'a1'",
    "'ab'.join('') == 'ab'",
    "{'a': 1}.join() == 'a'",
    "b'A'.lowerAscii() == b'a'",
    "'a'.replace('a', 1) == ''",
    "'a'.replace('a', 'b', true) == ''",
    "'tacocat'.substring(40) == ''",
    "'tacocat'.substring(-1) == ''",
    "'tacocat'.substring(1, 50) == ''",
    "'tacocat'.substring(49, 3) == ''",
    "'tacocat'.substring(2, 1) == ''",
    "null.trim() == ''",
    "[1, 2].reverse() == [2, 1]",
    "strings.quote(1) == ''",
    "regex.replace('abc', 'a' + '(', 'x') == ''",
    r"regex.replace('abc', '(a)', r'\2') == ''",
    r"regex.replace('abc', 'a', r'\x') == ''",
    r"regex.replace('abc', 'a', 'x\\') == ''",
    "regex.replace('abc', 'a', 'x', 1.0) == ''",
    "regex.extract('hello', 'x') == ''",
    "regex.extract('ab', '(a)(b)') == 'a'",
    "regex.extract('b', '(a)?b') == ''",
    "regex.extractAll('ab', '(a)(b)') == []",
    "regex.extractAll(1, 'a') == []",
    "math.greatest([]) == 0",
    "math.greatest(1, '2') == 2",
    "math.least(true, 1) == 1",
    "math.round(1) == 1.0",
    "math.isNaN(1)",
    "math.abs(-9223372036854775808) > 0",
    "math.abs('1') == 1",
]


def judged(expression: str, variables: Mapping[str, Any] | None = None) -> Outcome:
    PROGRAMS.check(expression, kind=POLICY)
    (result,) = PROGRAMS.judge([(POLICY, expression)], variables or {}, log_id=1)
    return result.outcome


@pytest.mark.parametrize("expression", TRUE)
def test_a_function_gives_what_its_extension_says(expression: str) -> None:
    assert judged(expression) is Outcome.ALLOW


@pytest.mark.parametrize("expression", UNDEFINED)
def test_a_function_is_an_error_where_it_is_not_defined(expression: str) -> None:
    assert judged(expression) is Outcome.ERROR


def test_functions_of_extensions_are_there_for_access_rules_too() -> None:
    PROGRAMS.check("path.split('.')[0].lowerAscii() == 'sales' && regex.extractAll(path, 'x') == []", kind=ACCESS_RULE)
    with pytest.raises(PolicyNotCompiledError, match=r"age\(\) is for policies"):
        PROGRAMS.check("age(path) > duration('1h')", kind=ACCESS_RULE)


def test_every_function_has_its_number_of_arguments() -> None:
    assert {*library.FUNCTIONS, *tables.FUNCTIONS} <= FUNCTIONS.keys()
    assert library.METHODS.keys() <= METHODS.keys()
    assert FIELDS_READ.keys() == tables.FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("expression", "place", "words"),
    [
        ("math.flor(1.5) == 1.0", (1, 6), "unknown function 'math.flor' (did you mean 'math.floor'?)"),
        ("true &&\n'a'.lowerascii() == 'a'", (2, 5), "unknown function 'lowerascii' (did you mean 'lowerAscii'?)"),
        ("hasColumn(result, 'x')", (1, 1), "unknown function 'hasColumn' (did you mean 'has_column'?)"),
        ("result.has_column('x')", (1, 8), "'has_column' is called with its value in brackets"),
        ("'a'.split() == []", (1, 5), "split takes 1 or 2 argument(s), found 0"),
        ("regex.replace('a', 'b') == ''", (1, 1), "regex.replace takes 3 or 4 argument(s), found 2"),
        ("math.greatest() == 1", (1, 1), "math.greatest takes 1 to 32 argument(s), found 0"),
        ("has_column(result)", (1, 1), "has_column takes 2 argument(s), found 1"),
        ("has_partition(result) == true", (1, 1), "has_partition takes 2 or 3 argument(s), found 1"),
        ("region(result)", (1, 1), "no boolean"),
        ("'a'.trim()", (1, 1), "no boolean"),
        ("math.abs(1)", (1, 1), "no boolean"),
        ("age(request.time)", (1, 1), "no boolean"),
        ("true && regex.extract(commit.name, '(') == ''", (1, 36), "not an RE2 pattern"),
        ("regex.replace(commit.name, '(a{1000}){1000}', '') == ''", (1, 28), "not an RE2 pattern"),
        ("regex.extractAll(commit.name, 'a(?=b)') == []", (1, 31), "not an RE2 pattern"),
        ("math == 1", (1, 1), "unknown variable 'math'"),
    ],
)
def test_a_wrong_call_is_refused_with_its_place(expression: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(PolicyNotCompiledError) as caught:
        PROGRAMS.check(expression, kind=POLICY)
    assert (caught.value.line, caught.value.column) == place
    assert words in caught.value.reason


def test_a_variable_of_a_macro_may_be_named_like_a_namespace() -> None:
    assert judged("['a'].all(strings, strings.size() == 1 && strings.quote(strings) == '\"a\"')") is Outcome.ALLOW
    assert judged("['a'].all(math, math == 'a')") is Outcome.ALLOW


LONG: Final = "a" * TEXT_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("join", ([LONG, "a"],)),
        ("join", (["", ""], LONG + "a")),
        ("replace", (LONG, "a", "aa", 1)),
        ("replace", (LONG, "", "a")),
        ("strings.quote", (LONG,)),
        ("regex.replace", (LONG, "a$", "aa")),
        ("regex.replace", ("a" * 2_000, "a", "b" * 1_000)),
        ("regex.extractAll", ("a" * (ELEMENTS_MAX + 1), "a")),
        ("split", ("a" * (ELEMENTS_MAX + 1), "")),
        ("split", ("," * ELEMENTS_MAX, ",")),
        ("split", ("," * ELEMENTS_MAX, ",", 2**62)),
    ],
)
def test_every_result_is_bounded(name: str, operands: tuple[Any, ...]) -> None:
    function = {**library.FUNCTIONS, **library.METHODS}[name]
    with pytest.raises(FAILURES, match="too long"):
        function(*operands)


def test_results_may_be_as_large_as_their_bounds() -> None:
    assert len(library.METHODS["join"]([LONG[1:], "a"])) == TEXT_CHARACTERS_MAX
    assert len(library.METHODS["replace"](LONG, "a", "b")) == TEXT_CHARACTERS_MAX
    assert len(library.METHODS["split"]("," * (ELEMENTS_MAX - 1), ",")) == ELEMENTS_MAX
    assert len(library.METHODS["split"]("," * (ELEMENTS_MAX + 5), ",", 3)) == 3


# Tables


def column(number: int, path: str, kind: str = "string", *, required: bool = False) -> dict[str, Any]:
    return {"id": number, "path": path, "name": path.rpartition(".")[2], "type": kind, "required": required, "doc": ""}


def table(*fields: dict[str, Any], exists: bool = True, **members: Any) -> dict[str, Any]:
    return {
        "exists": exists,
        "fields": list(fields),
        "partition_fields": [],
        "properties": {},
        "location": "",
        **members,
    }


ORDERS: Final = table(
    column(1, "id", "int", required=True),
    column(2, "address", "struct"),
    column(3, "address.city"),
    partition_fields=[
        {"name": "b", "transform": "bucket[16]", "source_id": 1, "source": "id"},
        {"name": "v", "transform": "void", "source_id": 3, "source": "address.city"},
    ],
)


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        ("has_column(table, 'id') && has_column(table, 'address.city')", Outcome.ALLOW),
        ("has_column(table, 'city') || has_column(table, 'ID')", Outcome.DENY),
        ("column_type(table, 'address') == 'struct' && column_type(table, 'id') == 'int'", Outcome.ALLOW),
        ("column_type(table, 'nothing') == ''", Outcome.ALLOW),
        ("has_partition(table, 'id')", Outcome.ALLOW),
        ("has_partition(table, 'id', 'bucket[16]') && has_partition(table, 'id', 'bucket')", Outcome.ALLOW),
        ("has_partition(table, 'id', 'bucket[8]') || has_partition(table, 'id', 'identity')", Outcome.DENY),
        ("has_partition(table, 'address.city')", Outcome.DENY),
        ("has_partition(table, 'address.city', 'void')", Outcome.ALLOW),
        ("[table].all(t, has_column(t, 'id'))", Outcome.ALLOW),
        ("has_column(table, 1)", Outcome.ERROR),
        ("has_column('table', 'id')", Outcome.ERROR),
        ("has_column({}, 'id')", Outcome.ERROR),
        ("has_column({'fields': 1}, 'id')", Outcome.ERROR),
        ("has_column({'fields': [1]}, 'id')", Outcome.ERROR),
        ("column_type({'fields': [{'path': 'id', 'type': ['int']}]}, 'id') == 'int'", Outcome.ERROR),
        ("has_partition(table, 'id', 1)", Outcome.ERROR),
        ("is_narrowed(table, 1)", Outcome.ERROR),
        ("region(1) == ''", Outcome.ERROR),
        ("region(null) == ''", Outcome.ERROR),
    ],
)
def test_a_table_is_asked_for_columns_and_partitions(expression: str, outcome: Outcome) -> None:
    assert judged(expression, {"table": ORDERS, "result": ORDERS}) is outcome


KEPT: Final = column(9, "kept")


@pytest.mark.parametrize(
    ("was", "now", "narrowed"),
    [
        ([column(1, "a", "int")], [column(1, "a", "int")], False),
        ([column(1, "a", "int")], [column(1, "a", "long")], False),
        ([column(1, "a", "long")], [column(1, "a", "int")], True),
        ([column(1, "a", "float")], [column(1, "a", "double")], False),
        ([column(1, "a", "double")], [column(1, "a", "float")], True),
        ([column(1, "a", "int")], [column(1, "a", "string")], True),
        ([column(1, "a", "decimal(9, 2)")], [column(1, "a", "decimal(10,2)")], False),
        ([column(1, "a", "decimal(9, 2)")], [column(1, "a", "decimal(9,2)")], False),
        ([column(1, "a", "decimal(9, 2)")], [column(1, "a", "decimal(8, 2)")], True),
        ([column(1, "a", "decimal(9, 2)")], [column(1, "a", "decimal(10, 3)")], True),
        ([column(1, "a", "date")], [column(1, "a", "timestamp")], False),
        ([column(1, "a", "date")], [column(1, "a", "timestamptz")], True),
        ([column(1, "a", "timestamp")], [column(1, "a", "date")], True),
        ([column(1, "a", "unknown")], [column(1, "a", "string")], False),
        ([column(1, "a", "fixed[4]")], [column(1, "a", "binary")], True),
        ([column(1, "a", "struct")], [column(1, "a", "map")], True),
        ([column(1, "a")], [], True),
        ([column(1, "a")], [column(2, "a")], True),  # another column of the name
        ([column(1, "a")], [column(1, "b")], False),
        ([column(1, "a")], [column(1, "a"), column(2, "b", required=True)], False),
        ([column(1, "a")], [column(1, "a", required=True)], True),
        ([column(1, "a", required=True)], [column(1, "a")], False),
        ([column(1, "s", "struct"), column(2, "s.a")], [column(1, "s", "struct")], True),
    ],
)
def test_a_table_is_narrowed_when_values_lose_their_place(
    was: list[dict[str, Any]], now: list[dict[str, Any]], narrowed: bool
) -> None:
    before, after = table(KEPT, *was), table(*now, KEPT)
    assert tables.is_narrowed(before, after) is narrowed
    assert tables.is_narrowed({**before, "exists": False}, after) is False
    assert tables.is_narrowed(before, {**after, "exists": False}) is False


NAMED: Final = [
    column(1, "email"),
    column(2, "address", "struct"),
    column(3, "address.phone"),
    column(4, "tags", "list"),
    column(5, "tags.element"),
    column(6, "address.phone_type"),
]


def found(*pairs: tuple[int, int]) -> dict[str, Any]:
    """What was found: field ids with confidences."""
    return {"columns": [{"field_id": number, "confidence": confidence} for number, confidence in pairs]}


def with_doc(number: int, doc: str) -> dict[str, Any]:
    return table(*({**each, "doc": doc} if each["id"] == number else each for each in NAMED))


@pytest.mark.parametrize(
    ("shown", "findings", "is_satisfied"),
    [
        (table(*NAMED), found(), True),
        (table(*NAMED), found((1, 92)), False),
        (table(*NAMED), found((1, 80)), False),
        (table(*NAMED), found((1, 79)), True),
        (table(*NAMED), found((7, 92)), True),  # a column that is gone
        (with_doc(1, "of the buyer; classification: email"), found((1, 92)), True),
        (with_doc(1, "no classification"), found((1, 92)), False),
        (with_doc(1, "classification: email"), found((1, 92), (3, 92)), False),
        (with_doc(2, "classification: address"), found((3, 92)), True),
        (with_doc(3, "classification: phone"), found((2, 92)), False),
        (with_doc(3, "classification: phone"), found((6, 92)), False),
        (with_doc(4, "classification: tags"), found((5, 92)), True),
        (table(*NAMED, properties={"classification.email": "email"}), found((1, 92)), True),
        (table(*NAMED, properties={"classification.phone": "phone"}), found((3, 92)), False),
        (table(*NAMED, properties={"classification.address.phone": "phone"}), found((3, 92)), True),
        (table(*NAMED, properties={"classification.address": "all of it"}), found((3, 92), (6, 92)), True),
        (table(*NAMED, properties={"classification": "all of it"}), found((1, 92)), False),
        (
            table(column(1, "a"), column(2, "a.b") | {"name": "a.b"}, properties={"classification.a": ""}),
            found((2, 92)),
            False,
        ),
    ],
)
def test_a_column_that_was_found_needs_a_classification(
    shown: dict[str, Any], findings: dict[str, Any], is_satisfied: bool
) -> None:
    assert tables.classification_satisfied(shown, findings, 80) is is_satisfied
    expected = Outcome.ALLOW if is_satisfied else Outcome.DENY
    assert judged("classification_satisfied(result, findings, 80)", {"result": shown, "findings": findings}) is expected


def test_without_a_confidence_every_finding_counts() -> None:
    assert tables.classification_satisfied(table(*NAMED), found((1, 1))) is False


@pytest.mark.parametrize(
    "call",
    [
        "classification_satisfied(1, findings)",
        "classification_satisfied(result, result)",
        "classification_satisfied(result, findings, 'high')",
        "classification_satisfied(result, findings, true)",
        "classification_satisfied(result, {'columns': [1]})",
        "classification_satisfied({'fields': [], 'properties': ''}, findings)",
    ],
)
def test_what_is_no_table_or_no_finding_is_an_error(call: str) -> None:
    assert judged(call, {"result": table(*NAMED), "findings": found((1, 92))}) is Outcome.ERROR


@pytest.mark.parametrize(
    ("place", "region"),
    [
        ("s3://acme-eu-central-1/t", "eu-central-1"),
        ("s3://acme/t", ""),
        ("s3://acme/eu-central-1/t", ""),  # a key says nothing of where the bucket is
        ("https://s3.us-gov-west-1.amazonaws.com/acme/t", "us-gov-west-1"),
        ("https://acme.s3.ap-northeast-1.amazonaws.com/t", "ap-northeast-1"),
        ("gs://acme-europe-west3/t", "europe-west3"),
        ("gs://acme-us-central1/t", "us-central1"),
        ("s3://teu-central-1/t", ""),
        ("s3://acme-eu-central-10/t", ""),
        ("s3://[acme/t", ""),
        ("", ""),
        ({"s3.region": "eu-west-1"}, "eu-west-1"),
        ({"client.region": "eu-west-2", "s3.region": "eu-west-1"}, "eu-west-2"),
        ({"owner": "ada"}, ""),
        (table(location="s3://acme-eu-west-1/t", properties={"region": "us-east-1"}), "eu-west-1"),
        (table(location="s3://acme/t", properties={"region": "us-east-1"}), "us-east-1"),
        (table(location="s3://acme/t"), ""),
    ],
)
def test_a_region_is_the_one_of_the_bucket_or_else_of_a_property(place: Any, region: str) -> None:
    assert tables.region(place) == region


@pytest.mark.parametrize(
    "expression",
    [
        "has_column(table, 'x')",
        "column_type(result, 'x') == ''",
        "has_partition(table, 'x', 'day')",
        "is_narrowed(table, result)",
        "is_narrowed(result, table) || table.exists",
        "region(result) == '' && region(result.location) == region(result.properties)",
        "result.columns.all(table, has_column(result, table.name))",
        "age(commit.name) > duration('1h')",
        "[1].all(request, age(commit.name) > duration('1h') && request == 1)",
        "has_column(commit, 'x')",
        "is_narrowed(table, principal)",
        "classification_satisfied(result, findings)",
        "classification_satisfied(result, findings, size(findings.columns))",
        "classification_satisfied( result, findings , 80) && findings.as_of > 0",
        "classification_satisfied(findings, result)",
    ],
)
def test_what_a_function_reads_is_found_without_the_parser(expression: str) -> None:
    needs, found = check(parse(expression, Interruption()), kind=POLICY), reads(expression, variables_of(POLICY))
    for variable, fields in needs.items():
        assert found[variable] is None or (fields is not None and fields <= (found[variable] or set()))


@pytest.mark.parametrize("name", sorted(tables.FUNCTIONS))
def test_a_function_of_tables_reads_the_fields_that_the_vocabulary_names(name: str) -> None:
    more = {"has_column": ", 'x'", "column_type": ", 'x'", "has_partition": ", 'x'", "is_narrowed": ", result"}
    more["classification_satisfied"] = ", findings, 80"
    call = f"{name}(table{more.get(name, '')})"
    needs = check(parse(f"{call} == 1", Interruption()), kind=POLICY)
    assert set(needs["table"] or ()) == FIELDS_READ[name]
    known = {field: ORDERS[field] for field in FIELDS_READ[name]}
    shown = {"table": known, "result": known, "findings": {"columns": []}}
    assert judged(f"{call} != null", shown) is not Outcome.ERROR
