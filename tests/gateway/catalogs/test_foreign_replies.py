# SPDX-License-Identifier: Apache-2.0
"""
The outcome of a forwarded mutation according to the upstream's reply: certain only if the reply is.
"""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogs.replies import Answered, ForwardOutcome, NeverSent, Unanswered, message_of, outcome_of
from gateway.mutations import Operation
from ledger.format.events import CommitOutcome

TABLE = orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": {"table-uuid": "u"}, "config": {}})
ERROR = orjson.dumps({"error": {"message": "no", "type": "CommitFailedException", "code": 409}})
TABLE_WRITES = (Operation.TABLE_CREATE, Operation.TABLE_COMMIT, Operation.TABLE_REGISTER)
VIEW_WRITES = (Operation.VIEW_CREATE, Operation.VIEW_REPLACE, Operation.VIEW_REGISTER)
OTHERS = tuple(set(Operation) - {*TABLE_WRITES, *VIEW_WRITES, Operation.TABLE_UNREGISTER})


def test_a_table_in_a_success_is_accepted_with_where_it_is() -> None:
    for operation in TABLE_WRITES:
        reply = Answered(status=200, body=TABLE)
        assert outcome_of(operation, reply) == ForwardOutcome(
            settled=CommitOutcome.ACCEPTED, reply=reply, metadata_location="s3://b/m.json", table_uuid="u"
        )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>welcome</html>",
        TABLE[:-1],
        b"[]",
        b"null",
        orjson.dumps({"metadata": {"table-uuid": "u"}}),
        orjson.dumps({"metadata-location": "", "metadata": {"table-uuid": "u"}}),
        orjson.dumps({"metadata-location": "s3://b/\0", "metadata": {"table-uuid": "u"}}),
        orjson.dumps({"metadata-location": "s3://b/" + "x" * 4_096, "metadata": {"table-uuid": "u"}}),
        orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": {"table-uuid": "u" * 65}}),
        orjson.dumps({"metadata-location": 1, "metadata": {"table-uuid": "u"}}),
        orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": None}),
        orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": {}}),
    ],
)
def test_a_success_without_a_table_is_unknown(body: bytes) -> None:
    for operation in TABLE_WRITES:
        assert outcome_of(operation, Answered(status=200, body=body)).settled is CommitOutcome.UNKNOWN


def test_a_success_says_what_it_has_made_a_table_or_a_view() -> None:
    for writes, others, uuid in ((TABLE_WRITES, VIEW_WRITES, "table-uuid"), (VIEW_WRITES, TABLE_WRITES, "view-uuid")):
        body = orjson.dumps({"metadata-location": "s3://b/m.json", "metadata": {uuid: "u"}})
        for operation in writes:
            outcome = outcome_of(operation, Answered(status=200, body=body))
            assert (outcome.settled, outcome.table_uuid) == (CommitOutcome.ACCEPTED, "u")
        for operation in others:
            assert outcome_of(operation, Answered(status=200, body=body)).settled is CommitOutcome.UNKNOWN


def test_a_success_of_an_unregistration_says_which_table_it_was_and_has_no_metadata_any_more() -> None:
    outcome = outcome_of(Operation.TABLE_UNREGISTER, Answered(status=200, body=TABLE))
    assert (outcome.settled, outcome.table_uuid, outcome.metadata_location) == (CommitOutcome.ACCEPTED, "u", None)
    assert outcome_of(Operation.TABLE_UNREGISTER, Answered(status=204)).settled is CommitOutcome.UNKNOWN


def test_what_goes_into_the_log_of_a_view_is_its_own_uuid() -> None:
    metadata = {"view-uuid": "u", "table-uuid": "t" * 1_000_000}
    body = orjson.dumps({"metadata-location": "s3://b/1", "metadata": metadata})
    assert outcome_of(Operation.VIEW_CREATE, Answered(status=200, body=body)).table_uuid == "u"


def test_other_mutations_need_no_body_to_succeed() -> None:
    for operation in OTHERS:
        for status in (200, 204):
            assert outcome_of(operation, Answered(status=status)).settled is CommitOutcome.ACCEPTED


def test_what_never_left_has_failed_and_what_left_is_unknown() -> None:
    for operation in Operation:
        assert outcome_of(operation, NeverSent(cause="refused")).settled is CommitOutcome.FAILED
        assert outcome_of(operation, Unanswered(cause="cut")).settled is CommitOutcome.UNKNOWN


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 410, 413, 415, 419, 422, 429])
def test_a_4xx_is_a_certain_no(status: int) -> None:
    assert outcome_of(Operation.TABLE_COMMIT, Answered(status=status)).settled is CommitOutcome.REFUSED


def test_a_409_is_a_conflict() -> None:
    outcome = outcome_of(Operation.TABLE_COMMIT, Answered(status=409, body=ERROR))
    assert outcome.settled is CommitOutcome.CONFLICTED
    assert outcome.cause == "the upstream answered 409 (CommitFailedException: no)"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304, 408, 500, 501, 502, 503, 504, 507, 599, 600, 199])
def test_everything_else_is_unknown(status: int) -> None:
    for body in (b"", ERROR, TABLE):
        for retry_after in (None, "1"):
            reply = Answered(status=status, body=body, retry_after=retry_after)
            assert outcome_of(Operation.TABLE_COMMIT, reply).settled is CommitOutcome.UNKNOWN


@given(
    operation=st.sampled_from(list(Operation)),
    reply=st.builds(Answered, status=st.integers(100, 999), body=st.binary(max_size=40)),
)
def test_no_answer_is_called_a_failure_and_none_raises(operation: Operation, reply: Answered) -> None:
    outcome = outcome_of(operation, reply)
    assert outcome.settled is not CommitOutcome.FAILED
    assert (outcome.settled is CommitOutcome.ACCEPTED) <= (200 <= reply.status <= 299)
    assert message_of(reply).startswith("the upstream answered ")
