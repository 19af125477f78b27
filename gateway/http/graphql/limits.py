# SPDX-License-Identifier: Apache-2.0
"""
What a query may ask for, checked before it is run. Pure: a text in, a document within its bounds out.

Parsing is bounded by the text's length and tokens. Nesting, aliases and fields are bounded before the document is
validated, since the time of that grows with their square. The cost of a valid document is how many fields an answer may
have at most: those within a list count as often as the list may have items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from graphql import (
    DocumentNode,
    FieldNode,
    FloatValueNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLSchema,
    InlineFragmentNode,
    IntValueNode,
    Node,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    Source,
    VariableNode,
    Visitor,
    get_named_type,
    is_composite_type,
    parse,
    visit,
)

from gateway.http.looking.query import LIMIT, LIMIT_MAX

TEXT_LENGTH_MAX: Final = 16_384
TOKENS_MAX: Final = 1_000
COMMENTS_MAX: Final = 100
DEPTH_MAX: Final = 12
"""Four steps along edges, say; each of them is three levels."""
INTROSPECTION_DEPTH_MAX: Final = 20
"""The query by which tools learn a schema unwraps types within types."""
ALIASES_MAX: Final = 20
FIELDS_MAX: Final = 250
COST_MAX: Final = 5_000
VARIABLES_MAX: Final = 30
NUMBER_LENGTH_MAX: Final = 20
"""Characters; no argument takes longer ones, and Python reads a number of any length slowly, or not at all."""
LONG_NUMBER: Final = re.compile(rf"[0-9.eE+-]{{{NUMBER_LENGTH_MAX + 1}}}")
ITEMS: Final = "items"
"""What a page holds: the page's own limit says how many."""
ITEMS_ASSUMED: Final = 10
"""Of a list that takes no limit: kinds of findings, versions of a policy."""
INTROSPECTION: Final = frozenset({"__schema", "__type"})
SPLIT: Final = ": ask in several queries"
"""What to do about a query that asks for too much."""


def parse_query(text: str) -> DocumentNode:
    """
    Return a text as a document with one operation, a query, within all bounds but its cost.

    Raises:
        GraphQLError: at the place where it is none.
    """
    document = parse(
        Source(text, "query"),
        max_lexical_tokens=TOKENS_MAX,
        max_comments=COMMENTS_MAX,
        max_source_length=TEXT_LENGTH_MAX,
    )
    if LONG_NUMBER.search(text):  # seldom: all of the document is looked through
        visit(document, _Numbers())
    operation = operation_of(document)
    if (count := len(operation.variable_definitions or ())) > VARIABLES_MAX:
        raise GraphQLError(f"expected at most {VARIABLES_MAX} variables, found {count}", operation)
    fields, aliases = 0, 0
    for node in _nodes(document):
        if isinstance(node, FieldNode):
            fields += 1
            aliases += node.alias is not None
            if fields > FIELDS_MAX:
                raise GraphQLError(f"expected at most {FIELDS_MAX} fields, found more{SPLIT}", node)
            if aliases > ALIASES_MAX:
                raise GraphQLError(f"expected at most {ALIASES_MAX} aliases, found more{SPLIT}", node)
    _Depth(_fragments(document)).check(operation.selection_set, 1, DEPTH_MAX)
    return document


def operation_of(document: DocumentNode) -> OperationDefinitionNode:
    """
    Return the one operation of a document.

    Raises:
        GraphQLError: if it has none, several, or one that is no query.
    """
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if len(operations) != 1:
        raise GraphQLError(
            f"expected one operation, found {len(operations)}: send one at a time", operations[1:2] or None
        )
    if operations[0].operation is not OperationType.QUERY:
        raise GraphQLError(
            f"expected a query, found a {operations[0].operation.value}: nothing can be changed here", operations
        )
    return operations[0]


def introspection_in(document: DocumentNode) -> FieldNode | None:
    """
    Return a field that asks what the schema has, None if there is none.
    """
    for node in _nodes(document):
        if isinstance(node, FieldNode) and node.name.value in INTROSPECTION:
            return node
    return None


def check_cost(document: DocumentNode, schema: GraphQLSchema, variables: Mapping[str, Any]) -> None:
    """
    Check how many fields the answer to a valid document may have.

    Raises:
        GraphQLError: if they may be more than `COST_MAX`.
    """
    operation, query = operation_of(document), schema.query_type
    if query is None:
        return
    defaults = {
        each.variable.name.value: int(each.default_value.value)
        for each in operation.variable_definitions or ()
        if isinstance(each.default_value, IntValueNode)
    }
    cost = _Cost(schema, _fragments(document), {**defaults, **variables}).of(operation.selection_set, query)
    if cost > COST_MAX:
        raise GraphQLError(
            f"expected a query whose answer has at most {COST_MAX} fields, found one that may have {cost}: "
            "ask for fewer fields, or with smaller limits",
            operation,
        )


class _Numbers(Visitor):
    """Refuses numbers that are too long to be read."""

    def enter_int_value(self, node: IntValueNode, *_: object) -> None:
        """Check a whole number."""
        self._check(node)

    def enter_float_value(self, node: FloatValueNode, *_: object) -> None:
        """Check another number."""
        self._check(node)

    def _check(self, node: IntValueNode | FloatValueNode) -> None:
        if (length := len(node.value)) > NUMBER_LENGTH_MAX:
            raise GraphQLError(f"expected a number of at most {NUMBER_LENGTH_MAX} digits, found {length}", node)


@dataclass(slots=True)
class _Depth:
    """Checks how deep selections nest; `levels` of a fragment are counted once."""

    fragments: Mapping[str, FragmentDefinitionNode]
    levels: dict[tuple[str, int], int] = field(default_factory=dict)

    def check(self, selected: SelectionSetNode, depth: int, most: int, within: frozenset[str] = frozenset()) -> None:
        """
        Check fields at `depth`; `within` are the fragments that lead here.

        Raises:
            GraphQLError: at the first field that is too deep, or a fragment that contains itself.
        """
        for node in selected.selections:
            if isinstance(node, FieldNode):
                bound = INTROSPECTION_DEPTH_MAX if node.name.value in INTROSPECTION else most
                if depth > bound:
                    raise GraphQLError(f"expected fields nested at most {bound} deep, found deeper ones{SPLIT}", node)
                if node.selection_set is not None:
                    self.check(node.selection_set, depth + 1, bound, within)
            elif isinstance(node, FragmentSpreadNode):
                name = node.name.value
                if name in within:
                    raise GraphQLError(f"expected fragments that do not contain themselves, found {name}", node)
                fragment = self.fragments.get(name)
                # Seen at this depth or deeper, it fits; validation names what is unknown.
                if fragment is not None and self.levels.get((name, most), 0) < depth:
                    self.check(fragment.selection_set, depth, most, within | {name})
                    self.levels[name, most] = depth
            elif isinstance(node, InlineFragmentNode):
                self.check(node.selection_set, depth, most, within)


@dataclass(slots=True)
class _Cost:
    """Counts the fields of an answer; those of a fragment once."""

    schema: GraphQLSchema
    fragments: Mapping[str, FragmentDefinitionNode]
    variables: Mapping[str, Any]
    counted: dict[str, int] = field(default_factory=dict)

    def of(self, selected: SelectionSetNode, parent: GraphQLObjectType | GraphQLInterfaceType) -> int:
        """Return how many fields a selection of one object may have."""
        cost = 0
        for node in selected.selections:
            if isinstance(node, FieldNode):
                cost += self._of_field(node, parent)
            elif isinstance(node, FragmentSpreadNode):
                name = node.name.value
                if name not in self.counted:
                    self.counted[name] = self.of(self.fragments[name].selection_set, parent)
                cost += self.counted[name]
            elif isinstance(node, InlineFragmentNode):
                cost += self.of(node.selection_set, parent)
        return cost

    def _of_field(self, node: FieldNode, parent: GraphQLObjectType | GraphQLInterfaceType) -> int:
        declared = self.schema.get_field(parent, node.name.value)
        if declared is None or node.selection_set is None or node.name.value in INTROSPECTION:
            return 1
        made = get_named_type(declared.type)
        if not is_composite_type(made) or not isinstance(made, (GraphQLObjectType, GraphQLInterfaceType)):
            return 1
        items = 1
        if LIMIT in declared.args:
            items = self._limit(node, declared.args[LIMIT].default_value)
        elif node.name.value != ITEMS and _is_list(declared.type):
            items = ITEMS_ASSUMED
        return 1 + items * self.of(node.selection_set, made)

    def _limit(self, node: FieldNode, usual: object) -> int:
        """Return what a field's limit is, or its most if that cannot be told: it is checked when the field is run."""
        limit: object = usual
        for argument in node.arguments or ():
            if argument.name.value == LIMIT:
                match argument.value:
                    case IntValueNode(value=text):
                        limit = int(text)
                    case VariableNode(name=name):
                        limit = self.variables.get(name.value, usual)
                    case _:
                        limit = LIMIT_MAX
        return min(max(limit, 1), LIMIT_MAX) if isinstance(limit, int) else LIMIT_MAX


def _fragments(document: DocumentNode) -> dict[str, FragmentDefinitionNode]:
    return {each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)}


def _nodes(document: DocumentNode) -> Iterator[Node]:
    """Yield what is selected, in the order of the text: in a loop, so that no nesting is too deep for it."""
    waiting: list[Any] = list(reversed(document.definitions))
    while waiting:
        node = waiting.pop()
        yield node
        selected = getattr(node, "selection_set", None)
        if selected is not None:
            waiting.extend(reversed(selected.selections))


def _is_list(made: GraphQLOutputType) -> bool:
    while isinstance(made, GraphQLNonNull):
        made = made.of_type
    return isinstance(made, GraphQLList)
