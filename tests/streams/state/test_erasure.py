# SPDX-License-Identifier: Apache-2.0
"""A login leaves what is kept and what waits here, page by page; of others nothing does."""

from __future__ import annotations

from ledger.erasing.redaction import LoginMatcher
from streams.connections import connect_storing
from streams.state.erasure import PAGE, erase_login
from testkit.streams.world import World

ADA = "ada@acme.example"
OF_EACH = "FROM (SELECT %s AS ada) AS p, generate_series(1, %s) AS n, unnest(ARRAY[%s, %s]::integer[]) AS log_id"
INSERTS = [
    (
        "INSERT INTO streams.dead_letters (log_id, source, id, payload, reason) SELECT log_id, 'message', 'of ' || n,"
        " convert_to(CASE WHEN n %% 2 = 0 THEN ada ELSE 'nobody' END, 'UTF8'), 'poison'"
    ),
    (
        "INSERT INTO streams.dead_letters (log_id, source, id, index, reason) SELECT log_id, 'entry', 'of ' || n, n,"
        " 'by ' || ada"
    ),
    (
        "INSERT INTO streams.outbox (log_id, sink, id, key, payload) SELECT log_id, 's', n, 'k',"
        " convert_to('{\"by\":\"' || ada || '\"}', 'UTF8')"
    ),
    "INSERT INTO streams.hosts (log_id, handler, host, reason) SELECT log_id, 'asks', 'of ' || n, 'asked as ' || ada",
]


async def test_a_login_is_taken_out_of_every_message_of_its_log_and_of_no_other(world: World) -> None:
    log, other = await world.new_log(), await world.new_log()
    logs = (ADA, 3 * PAGE, log.log_id, other.log_id)
    for insert in INSERTS:
        await world.rows(f"{insert} {OF_EACH}", *logs)
    async with connect_storing(world.dsn) as connection:
        assert await erase_login(connection, log.log_id, LoginMatcher(ADA)) == 3 * PAGE // 2 + 9 * PAGE
        assert await erase_login(connection, log.log_id, LoginMatcher(ADA)) == 0
    kept = (
        "SELECT log_id, kind, count(*), count(*) FILTER (WHERE strpos(text, 'ada') > 0) FROM ("
        " SELECT log_id, source, reason || coalesce(convert_from(payload, 'UTF8'), '') FROM streams.dead_letters"
        " UNION ALL SELECT log_id, 'waits', convert_from(payload, 'UTF8') FROM streams.outbox"
        " UNION ALL SELECT log_id, 'answers', reason FROM streams.hosts) AS t (log_id, kind, text)"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    )
    whole, half = 3 * PAGE, 3 * PAGE // 2
    assert await world.rows(kept) == [
        (log.log_id, "answers", whole, 0),
        (log.log_id, "entry", whole, 0),
        (log.log_id, "message", half, 0),
        (log.log_id, "waits", whole, 0),
        (other.log_id, "answers", whole, whole),
        (other.log_id, "entry", whole, whole),
        (other.log_id, "message", whole, half),
        (other.log_id, "waits", whole, whole),
    ]
