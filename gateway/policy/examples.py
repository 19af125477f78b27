# SPDX-License-Identifier: Apache-2.0
"""
The examples of a policy: commits that it must allow, and commits that it must deny.

An example says only what matters: `given` is laid over the variables of an empty commit (`EMPTY`), so that a policy
finds every variable and field that a real commit has. What a real commit cannot have is refused: an unknown variable
or field, and a value of another type; otherwise an example could hold although its policy never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.errors import BadRequestError
from gateway.policy.engine import POLICY, Outcome, Program
from gateway.policy.judging import Evaluate, countdown
from gateway.policy.nearest import nearest
from gateway.policy.table import DEPTH_MAX, INTEGER_MAX
from gateway.policy.variables import (
    AS_REQUESTED,
    ClassifiedView,
    CommitView,
    FindingsView,
    FindingView,
    LineageView,
    PrincipalView,
    RequestView,
    UpstreamView,
    activation,
)
from gateway.policy.vocabulary import Fields, variables_of
from ledger.errors import FormatError

if TYPE_CHECKING:
    from ledger.format.canonical import Json

EXAMPLES_MAX: Final = 50
EXAMPLES_SIZE_BYTES_MAX: Final = 24_576
"""All examples of a policy as an event of the log holds them, which has its expression and scope beside them."""
NAME_LENGTH_MAX: Final = 200

EXPECTED: Final = {"allow": Outcome.ALLOW, "deny": Outcome.DENY}
_MEMBERS: Final = ("expect", "name", "given")
_TYPES: Final = (
    (bool, "true or false"),  # before int, whose child it is
    (int, "an integer"),
    (str, "a text"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """
    A commit, and what the policy must say about it: `Outcome.ALLOW` or `Outcome.DENY`.

    `name` is for people, and may be empty. `given` is what `variables_given` accepts.
    """

    name: str
    expect: Outcome
    given: Mapping[str, Json]


def parse_examples(value: Json, *, where: str = "examples") -> tuple[Example, ...]:
    """
    Return the examples that the list `value` describes; None describes none.

    Raises:
        BadRequestError: if there are more than `EXAMPLES_MAX`, or they are too large, or one is malformed, or holds
            what no commit has; names the place, and the nearest known name.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadRequestError(f"expected a list of examples, found {value!r:.80}", field=where)
    if len(value) > EXAMPLES_MAX:
        raise BadRequestError(f"expected at most {EXAMPLES_MAX} examples, found {len(value)}", field=where)
    examples = tuple(_parse(one, where=f"{where}[{position}]") for position, one in enumerate(value))
    if (size_bytes := stored_size_bytes(examples)) > EXAMPLES_SIZE_BYTES_MAX:
        raise BadRequestError(
            f"expected at most {EXAMPLES_SIZE_BYTES_MAX:,} bytes of examples, found {size_bytes:,}", field=where
        )
    return examples


def format_examples(examples: Iterable[Example]) -> list[dict[str, Json]]:
    """Return examples as JSON: what `parse_examples` reads."""
    return [
        {**({"name": one.name} if one.name else {}), "expect": str(one.expect), "given": dict(one.given)}
        for one in examples
    ]


def given_text(example: Example) -> str:
    """
    Return what is given in an example as the log holds it: JSON, its names sorted, without blanks.

    It is a text, since names of properties are any characters, and members of an event have names in ASCII.
    """
    return orjson.dumps(example.given, option=orjson.OPT_SORT_KEYS).decode()


def parse_given(*, name: str, expect: str, given: str) -> Example:
    """
    Return the example that the log holds; `given` is what `given_text` returned.

    Raises:
        FormatError: if it is nothing that the log holds.
    """
    try:
        value = orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise FormatError("example", expected=f"JSON ({error})", found=given) from error
    if not isinstance(value, dict) or expect not in EXPECTED:
        raise FormatError("example", expected="what is given, and allow or deny", found=(expect, given))
    return Example(name=name, expect=EXPECTED[expect], given=value)


def stored_size_bytes(examples: Iterable[Example]) -> int:
    """Return the bytes that examples take in an event: there, what is given is a text within JSON."""
    return sum(
        len(orjson.dumps({"name": one.name, "expect": str(one.expect), "given": given_text(one)})) for one in examples
    )


async def failing(
    evaluate: Evaluate, expression: str, examples: Sequence[Example], *, timeout_s: float
) -> tuple[str, ...]:
    """
    Return a sentence for each of `examples` on which `expression` does not say what the example expects.

    All of them together may take `timeout_s`.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    program = Program(kind=POLICY, id="example", version=1, expression=expression)
    remaining_s = countdown(timeout_s)
    sentences = []
    for position, example in enumerate(examples):
        (verdict,) = await evaluate([program], variables_given(example.given), timeout_s=remaining_s())
        if verdict.outcome is not example.expect:
            found = f"{verdict.outcome}: {verdict.detail}" if verdict.detail else str(verdict.outcome)
            sentences.append(f"{_named(example, position)}: expected {example.expect}, found {found}")
    return tuple(sentences)


def _named(example: Example, position: int) -> str:
    return f"example {position + 1} ({example.name})" if example.name else f"example {position + 1}"


def _parse(value: Json, *, where: str) -> Example:
    if not isinstance(value, Mapping):
        raise BadRequestError(f"expected an object with expect, name and given, found {value!r:.80}", field=where)
    for member in value:
        _check_known(member, _MEMBERS, where=where)
    known: Mapping[str, Json] = {"expect": None, "name": "", "given": {}, **value}
    expect, name, given = known["expect"], known["name"], known["given"]
    if not isinstance(expect, str) or expect not in EXPECTED:
        raise BadRequestError(f"expected allow or deny, found {expect!r:.80}", field=f"{where}.expect")
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise BadRequestError(
            f"expected at most {NAME_LENGTH_MAX} printable characters, found {name!r:.80}", field=f"{where}.name"
        )
    if not isinstance(given, Mapping):
        raise BadRequestError(f"expected an object of variables, found {given!r:.80}", field=f"{where}.given")
    variables_given(given, where=f"{where}.given")
    return Example(name=name, expect=EXPECTED[expect], given=given)


def variables_given(given: Mapping[str, Json], *, where: str = "given") -> dict[str, Json]:
    """
    Return the variables of an empty commit with `given` laid over them.

    Objects are laid over member by member, everything else replaces. The elements of a list whose elements have fixed
    fields (columns, snapshots, …) may leave out fields, which then are empty.

    Raises:
        BadRequestError: if `given` holds what no commit has; names the place, and the nearest known name.
    """
    return cast("dict[str, Json]", _laid_over(given, EMPTY, _SAMPLE, variables_of(POLICY), where=where))


def _laid_over(value: Json, empty: Any, sample: Any, known: Fields | None, *, where: str) -> Json:
    """
    Return `value` over the value `empty` of the empty commit.

    `sample` is the same member of a commit that has one of everything; `known` are the fields of a member that has
    fixed ones.
    """
    if empty is None:
        return _free(value, where=where)
    _check_type(value, empty, where=where)
    if isinstance(value, Mapping) and known is not None:
        laid = dict(empty)
        for name, member in value.items():
            _check_known(name, known, where=where)
            laid[name] = _laid_over(member, empty[name], sample[name], known[name], where=f"{where}.{name}")
        return laid
    if isinstance(value, Mapping):
        shape = next(iter(sample.values()), None)
        return {_key(name, where): _element(one, shape, where=f"{where}.{name}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        shape = sample[0] if sample else None
        return [_element(one, shape, where=f"{where}[{position}]") for position, one in enumerate(value)]
    return _free(value, where=where)


def _element(value: Json, shape: Any, *, where: str) -> Json:
    """Return an element of a list or map, completed to the fields of `shape`, such an element; None: of any shape."""
    if shape is None:
        return _free(value, where=where)
    _check_type(value, shape, where=where)
    if isinstance(value, list | tuple) and shape:
        return [_element(one, shape[0], where=f"{where}[{position}]") for position, one in enumerate(value)]
    if not isinstance(value, Mapping) or not shape:
        return _free(value, where=where)
    complete: dict[str, Json] = {name: _zero(member) for name, member in shape.items()}
    for name, member in value.items():
        _check_known(name, shape, where=where)
        complete[name] = _element(member, shape[name], where=f"{where}.{name}")
    return complete


def _zero(value: Any) -> Json:
    """Return the empty value of the type of `value`."""
    if isinstance(value, Mapping):
        return {name: _zero(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return []
    return None if value is None else cast("Json", type(value)())


def _free(value: Any, *, where: str, depth: int = 0) -> Json:
    """Return `value` if it is JSON as the variables of a commit are: integers within 53 bits, no fractions."""
    if depth > DEPTH_MAX:
        raise BadRequestError(f"expected at most {DEPTH_MAX} levels, found more", field=where[:200])
    if isinstance(value, Mapping):
        return {_key(name, where): _free(one, where=f"{where}.{name}", depth=depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_free(one, where=f"{where}[{position}]", depth=depth + 1) for position, one in enumerate(value)]
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -INTEGER_MAX <= value <= INTEGER_MAX:
        return value
    raise BadRequestError(
        f"expected a text, an integer within 53 bits, true, false, a list or an object, found {value!r:.80}: write "
        "other numbers as texts",
        field=where[:200],
    )


def _key(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise BadRequestError(f"expected a text as a name, found {name!r:.80}: write it in quotes", field=where[:200])
    return _text(name, where)


def _text(text: str, where: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise BadRequestError("expected no lone surrogates, found one", field=where[:200])
    return text


def _type_of(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "nothing")


def _check_type(value: Any, like: Any, *, where: str) -> None:
    """Refuse a value of another type than `like`, which is of a commit."""
    if like is not None and _type_of(value) != _type_of(like):
        raise BadRequestError(f"expected {_type_of(like)}, found {value!r:.80}", field=where[:200])


def _check_known(name: object, known: Iterable[str], *, where: str) -> None:
    names = tuple(known)
    if not isinstance(name, str) or name not in names:
        raise BadRequestError(
            f"expected some of {', '.join(names)}, found {name!r:.80}; the nearest is {nearest(str(name)[:80], names)}",
            field=where[:200],
        )


EMPTY: Final[Mapping[str, Json]] = activation(
    table=None,
    result=None,
    commit=CommitView(catalog="", namespace=(), name="", kind="table", operation="table.commit"),
    principal=PrincipalView(actor="", source=""),
    request=RequestView(method="POST", path=""),
)
"""The variables of a commit of a table that changes nothing, by nobody; there is no table, before or after it."""


def _sample() -> Mapping[str, Json]:
    """Return the variables of a commit with one of everything: the types and the fields of elements come from here."""
    snapshot = {"snapshot-id": 1}
    statistics = {"snapshot-id": 1, "statistics-path": "s", "file-size-in-bytes": 1, "blob-metadata": [{"type": "b"}]}
    columns = [{"id": number, "name": name, "required": True, "type": "long"} for number, name in ((1, "c"), (3, "e"))]
    result = {
        "table-uuid": "u",
        "schemas": [{"schema-id": 0, "fields": columns}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [{"name": "p", "transform": "identity", "source-id": 1}]}],
        "default-spec-id": 0,
        "sort-orders": [{"order-id": 1, "fields": [{"source-id": 1, "transform": "identity"}]}],
        "default-sort-order-id": 1,
        "properties": {"p": "v"},
        "current-snapshot-id": 1,
        "snapshots": [snapshot],
        "statistics": [statistics],
    }
    gone = [{"id": 1, "name": "c", "required": True, "type": "int"}, {"id": 2, "name": "d", "type": "int"}]
    table = {
        **result,
        "schemas": [{"schema-id": 0, "fields": gone}],
        "snapshots": [snapshot, {"snapshot-id": 2}],
    }
    added = {"action": "add-snapshot", "snapshot": snapshot}
    finding = FindingView(
        column="c", field_id=1, kind="email", confidence=92, matches=1, values=1, snapshot="1", found_at="t"
    )
    found = activation(
        table=table,
        result=result,
        commit=CommitView(
            catalog="c",
            namespace=("n",),
            name="t",
            kind="table",
            operation="table.commit",
            actions=("META_ADD_SNAPSHOT",),
            updates=(added,),
        ),
        principal=PrincipalView(actor="a", source="s", roles=("r",), groups=("g",), attributes=(("a", "v"),)),
        request=RequestView(method="POST", path="/"),
        findings=FindingsView(columns=(finding,)),
        lineage=LineageView(
            upstream=(UpstreamView(catalog="c", namespace=("n",), name="t", uuid="u", hops=1, kinds=(("email", 92),)),),
            classified=(
                ClassifiedView(catalog="c", namespace=("n",), name="t", uuid="u", hops=1, classifications=("pii",)),
            ),
        ),
    )
    for variable, as_requested in AS_REQUESTED.items():
        members = cast("Mapping[str, Json]", found[variable])
        found[variable] = {**members, **{name: [] for name in as_requested}}  # elements of any shape
    for variable in ("table", "result"):
        found[variable] = {**cast("Mapping[str, Json]", found[variable]), "queries": {"spark": "q"}}  # a view's
    return found


_SAMPLE: Final = _sample()
