# SPDX-License-Identifier: Apache-2.0
"""Answers that are kept: within their bound, and each with a tag of its own."""

from __future__ import annotations

from gateway.metadata.kept_answers import AnswerKey, KeptAnswers


def key(number: int, *, snapshots: str = "all", config: str = "{}") -> AnswerKey:
    return AnswerKey(f"s3://b/{number}.json", f"{number:064}", snapshots, config)


def test_answers_are_kept_up_to_a_bound_the_last_used_ones() -> None:
    kept = KeptAnswers(kept_bytes_max=100)
    for number in range(3):
        kept.keep(key(number), b"x" * 40)
        assert kept.get(key(0)) is not None
    assert [kept.get(key(number)) is not None for number in range(3)] == [True, False, True]
    kept.keep(key(2), b"x" * 40)
    assert [kept.get(key(number)) is not None for number in range(3)] == [True, False, True], "counted once"
    assert kept.keep(key(3), b"x" * 101).body == b"x" * 101
    assert kept.get(key(3)) is None, "it alone is over the bound"
    assert kept.get(key(0)) is not None
    kept.keep(key(4), b"x" * 100)
    assert [kept.get(key(number)) is not None for number in range(5)] == [False, False, False, False, True]


def test_an_answer_that_is_dropped_makes_room() -> None:
    kept = KeptAnswers(kept_bytes_max=100)
    for number in range(2):
        kept.keep(key(number), b"x" * 50)
    for _ in range(2):
        kept.drop(key(0))
    kept.keep(key(2), b"x" * 50)
    assert [kept.get(key(number)) is not None for number in range(3)] == [False, True, True]


def version(number: int, *, table: str = "t", snapshots: str = "all") -> AnswerKey:
    return AnswerKey(f"s3://b/{table}/metadata/{number:05}-x.metadata.json", f"{number:064}", snapshots, "{}")


def test_of_one_table_only_the_newest_answer_is_kept() -> None:
    kept = KeptAnswers()
    for each in (version(1), version(1, snapshots="refs"), version(1, table="other"), version(2)):
        kept.keep(each, b"x")
    assert kept.get(version(1)) is None
    assert kept.get(version(2)) is not None
    assert kept.get(version(1, snapshots="refs")) is not None
    assert kept.get(version(1, table="other")) is not None
    assert kept.keep(version(1), b"late").body == b"late"
    assert kept.get(version(1)) is None, "it was made while the table was changed"
    kept.drop(version(2))
    kept.keep(version(1), b"x")
    assert kept.get(version(1)) is not None, "the newer one was not committed after all"
    kept.keep(version(100_000), b"x")
    kept.keep(version(99_999), b"x")
    assert kept.get(version(100_000)) is not None


def test_each_thing_that_an_answer_is_made_of_is_in_its_tag() -> None:
    keys = [
        key(0),
        key(1),
        key(0, snapshots="refs"),
        key(0, config='{"s3.region":"r"}'),
        key(0)._replace(metadata_sha256="0" * 63 + "1"),
        AnswerKey("s3://b/0.json\x00", "0" * 64, "all", "{}"),
    ]
    tags = [each.etag() for each in keys]
    assert len(set(tags)) == len(tags)
    assert tags == [each.etag() for each in keys]
    assert all(tag[0] == tag[-1] == '"' and tag[1:-1].isalnum() for tag in tags)
