# SPDX-License-Identifier: Apache-2.0
"""
A real Nessie that authorizes by a rule file, and what our rules say to the same requests by the same file.

One file has many sets of random rules. A caller has a set by a role of its name, so that one server judges by all of
them. Requests are those that both have, each with its verdict there (an answer that is no refusal) and here.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import RSAKey

from gateway.policy.access import EACH_CHECK, Access, AccessRequest, JudgedRule
from gateway.policy.checks import Check, check_activation, decide_unit
from gateway.policy.judging import judge_rules
from gateway.policy.rule_files import PREFIX, parse_rule_file
from gateway.policy.variables import CommitView, PrincipalView
from lakeproof.demo.cloud import Cloud
from ledger.format.events import Effect
from testkit.gateway.sales import SCHEMA
from testkit.gateway.view_requests import view_created
from testkit.servers.nessie import MAIN, Nessie, start_nessie
from testkit.servers.policy_engine import shared_engine

SETS_MAX: Final = 49
RULES_OF_SET_MAX: Final = 4
REFERENCES: Final = (MAIN, "dev", "prod")
NAMESPACES: Final = ("shop", "dev")
TABLES: Final = ("Foo", "Bar")
VIEW: Final = "Seen"
NAMES: Final = ("Ada", "Bob")
GROUPS: Final = ("g1", "g2")
NO_ANCESTOR: Final = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
"""The hash before a repository's first commit: no branch that has commits is there."""
JUDGE_TIMEOUT_S: Final = 60.0
TRIES_MAX: Final = 5

_VIEW: Final = "VIEW_REFERENCE"
_OPS: Final = (
    "VIEW_REFERENCE",
    "CREATE_REFERENCE",
    "DELETE_REFERENCE",
    "ASSIGN_REFERENCE_TO_HASH",
    "READ_ENTRIES",
    "LIST_COMMIT_LOG",
    "COMMIT_CHANGE_AGAINST_REFERENCE",
    "READ_CONTENT_KEY",
    "READ_ENTITY_VALUE",
    "CREATE_ENTITY",
    "UPDATE_ENTITY",
    "DELETE_ENTITY",
)
_COMMON: Final = ("VIEW_REFERENCE", "COMMIT_CHANGE_AGAINST_REFERENCE", "READ_ENTITY_VALUE")
_PATHS: Final = ("shop.Foo", "shop.Bar", "dev.Foo", "dev.Bar", "shop.Seen", "shop", "dev", "")
_TYPES: Final = ("ICEBERG_TABLE", "ICEBERG_VIEW", "NAMESPACE", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: a name, which is the primary role, and roles, of which one is the name of a set of rules."""

    name: str
    roles: tuple[str, ...]

    def view(self) -> PrincipalView:
        """Return the caller as our rules see it."""
        return PrincipalView(actor="a" * 32, source="token", sub=self.name, roles=(self.name, *self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    A request to Nessie, and the same here: one of a catalog (`commit`), or the checks of a reference alone (`ops`).

    `made` is the path of a table that has to be there before.
    """

    method: str
    path: str
    branch: str
    body: Any = None
    commit: CommitView | None = None
    ops: tuple[str, ...] = ()
    made: str | None = None

    @property
    def what(self) -> str:
        """Return what is asked for, in the words of the gateway or of Nessie's checks."""
        return self.ops[-1] if self.commit is None else self.commit.operation


# Rules


def random_rules(random: Random, sets: int) -> str:
    """Return a rule file with that many sets of random rules, and one rule that lets `admin` do everything."""
    # It names the operation without which a file permits to view every reference.
    lines = [f"{PREFIX}admin='admin' in roles && op.matches('.*|VIEW_REFERENCE')"]
    for number in range(sets):
        expressions = [_random_rule(random) for _ in range(random.randint(1, RULES_OF_SET_MAX))]
        lines += [
            f"{PREFIX}set-{number}-{at}=\\\n  'set-{number}' in roles && ({expression})"
            for at, expression in enumerate(expressions)
        ]
    return "\n".join(lines) + "\n"


def _random_rule(random: Random) -> str:
    """Most rules of people name operations, and then where."""
    match random.randrange(6):
        case 0:
            return _random_condition(random, depth=3)
        case 1:
            return "op == 'VIEW_REFERENCE'"
        case _:
            chosen = sorted({*random.sample(_OPS, random.randint(1, 6)), *random.sample(_COMMON, 2)})
            depth = random.randrange(4)
            where = _random_condition(random, depth=depth) if depth else "true"
            return f"op in {_listed(chosen)} && ({where})"


def _random_condition(random: Random, *, depth: int) -> str:
    if depth <= 1:
        return _random_atom(random)
    left, right = (_random_condition(random, depth=depth - 1) for _ in range(2))
    match random.randrange(5):
        case 0:
            return f"!({left})"
        case 1:
            return f"({left}) ? ({right}) : ({_random_atom(random)})"
        case 2:
            return f"({left}) && ({right})"
        case _:
            return f"({left}) || ({right})"


def _random_atom(random: Random) -> str:
    path, ref, op = random.choice(_PATHS), random.choice(REFERENCES), random.choice(_OPS)
    name, group, kind = random.choice(NAMES), random.choice(GROUPS), random.choice(_TYPES)
    return random.choice(
        [
            "true",
            f"op == '{op}'",
            f"op.startsWith('{op[: random.randint(1, len(op))]}')",
            "op.endsWith('_ENTITY')",
            "op.matches('REFERENCE|LOG$')",
            f"ref == '{ref}'",
            f"ref in {_listed(random.sample(REFERENCES, 2))}",
            f"ref.matches('^({ref}|x.*)$')",
            f"path == '{path}'",
            f"path.startsWith('{path}')",
            f"path.endsWith('{path[-2:]}')",
            f"path.contains('{path[-3:-1]}')",
            f"path.matches('^{path[:3]}[a-z]*')",
            f"role == '{name}'",
            f"role.startsWith('{name[0]}')",
            f"'{group}' in roles",
            f"roles.exists(r, r == '{group}')",
            f"roles.all(r, r != '{group}')",
            f"contentType == '{kind}'",
            f"contentType in {_listed(random.sample(_TYPES, 2))}",
        ]
    )


def _listed(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"


# Requests


def random_request(random: Random, number: int) -> Asked:
    """Return a request that both have; what it makes or drops has `number` in its name."""
    make = random.choice([_load, _load, _change, _view, _namespace, _update, _create, _drop, *[_reference] * 4])
    return make(random, number, random.choice(REFERENCES), random.choice(NAMESPACES))


def _content(operation: str, *levels: str, name: str = "") -> CommitView:
    kind = operation.partition(".")[0]
    return CommitView(catalog="far", namespace=levels, name=name, kind=kind, operation=operation)


def _namespaces(branch: str) -> str:
    return f"/iceberg/v1/{branch}/namespaces"


def _load(random: Random, _: int, branch: str, namespace: str) -> Asked:
    table = random.choice(TABLES)
    path = f"{_namespaces(branch)}/{namespace}/tables/{table}"
    return Asked(method="GET", path=path, branch=branch, commit=_content("table.load", namespace, name=table))


def _change(random: Random, number: int, branch: str, namespace: str) -> Asked:
    loaded = _load(random, number, branch, namespace)
    table = loaded.path.rpartition("/")[2]
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"number": str(number)}}]}
    return Asked(
        method="POST",
        path=loaded.path,
        branch=branch,
        body=body,
        commit=_content("table.commit", namespace, name=table),
    )


def _view(_random: Random, _: int, branch: str, _namespace: str) -> Asked:
    path = f"{_namespaces(branch)}/shop/views/{VIEW}"
    return Asked(method="GET", path=path, branch=branch, commit=_content("view.load", "shop", name=VIEW))


def _namespace(_random: Random, _: int, branch: str, namespace: str) -> Asked:
    path = f"{_namespaces(branch)}/{namespace}"
    return Asked(method="GET", path=path, branch=branch, commit=_content("namespace.load", namespace))


def _update(_random: Random, number: int, branch: str, namespace: str) -> Asked:
    path = f"{_namespaces(branch)}/{namespace}/properties"
    body = {"removals": [], "updates": {"number": str(number)}}
    return Asked(method="POST", path=path, branch=branch, body=body, commit=_content("namespace.update", namespace))


def _create(random: Random, number: int, branch: str, namespace: str) -> Asked:
    new = f"new{number}"
    if random.randrange(3):
        body: Any = {"namespace": [new], "properties": {}}
        return Asked(
            method="POST", path=_namespaces(branch), branch=branch, body=body, commit=_content("namespace.create", new)
        )
    path = f"{_namespaces(branch)}/{namespace}/tables"
    commit = _content("table.create", namespace, name=new)
    return Asked(method="POST", path=path, branch=branch, body=_new_table(new), commit=commit)


def _drop(_random: Random, number: int, branch: str, namespace: str) -> Asked:
    path = f"{_namespaces(branch)}/{namespace}/tables/gone{number}"
    commit = _content("table.drop", namespace, name=f"gone{number}")
    return Asked(method="DELETE", path=path, branch=branch, commit=commit, made=path)


def _reference(random: Random, _number: int, branch: str, _namespace: str) -> Asked:
    """What is permitted fails after the check: a branch of that name is there, or it is not at that hash."""
    tree, elsewhere = f"/api/v2/trees/{branch}", {"type": "BRANCH", "name": branch, "hash": NO_ANCESTOR}
    every = [
        Asked(method="GET", path=tree, branch=branch, ops=("VIEW_REFERENCE",)),
        Asked(method="GET", path=f"{tree}/history?max-records=1", branch=branch, ops=(_VIEW, "LIST_COMMIT_LOG")),
        Asked(
            method="POST",
            path=f"/api/v2/trees?name={branch}&type=BRANCH",
            branch=branch,
            body=elsewhere,
            ops=(_VIEW, "CREATE_REFERENCE"),
        ),
        Asked(
            method="PUT",
            path=f"{tree}@{NO_ANCESTOR}?type=BRANCH",
            branch=branch,
            body=elsewhere,
            ops=(_VIEW, "ASSIGN_REFERENCE_TO_HASH"),
        ),
    ]
    if branch != MAIN:
        path = f"{tree}@{NO_ANCESTOR}?type=BRANCH"
        every.append(Asked(method="DELETE", path=path, branch=branch, ops=(_VIEW, "DELETE_REFERENCE")))
    return random.choice(every)


def _new_table(name: str) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "stage-create": False}


# The two


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledNessie:
    """A running server that judges by `file`; `rules` are ours, of the same file."""

    nessie: Nessie
    file: str
    rules: tuple[JudgedRule, ...]
    key: RSAKey
    http: httpx.Client

    def verdict(self, caller: Caller, asked: Asked) -> bool:
        """Return whether the server permits a request."""
        if asked.made is not None:
            folder, _, name = asked.made.rpartition("/")
            assert not _is_refused(self._answer(ADMIN, "POST", folder, _new_table(name))), f"{asked} cannot be made"
        return not _is_refused(self._answer(caller, asked.method, asked.path, asked.body))

    def _answer(self, caller: Caller, method: str, path: str, body: Any) -> httpx.Response:
        """
        Return an answer that says whether a request is permitted. On a busy machine its store fails a server now and
        then, after the checks: then it is asked again. That what it was to make is there then proves nothing of the
        caller's rights: the answer that failed may have made it.
        """
        answers = list[str]()
        for _ in range(TRIES_MAX):
            answer = self.send(caller, method, path, body)
            is_there = answer.status_code == httpx.codes.CONFLICT and (not answers or caller == ADMIN)
            if _is_refused(answer) or answer.is_success or is_there:
                return answer
            answers.append(f"{answer.status_code} {answer.text}")
        raise AssertionError(f"{method} {path}: {answers}")

    async def own_verdict(self, caller: Caller, asked: Asked) -> bool:
        """Return whether our rules permit the same. Those of other sets begin with a role that the caller lacks."""
        rules = [one for one in self.rules if one.id == "admin" or one.id.startswith(f"{caller.roles[0]}-")]
        evaluate = partial(shared_engine().judge, log_id=1)
        commit = asked.commit or _content("table.load", name="")
        request = AccessRequest(commit=commit, principal=caller.view(), branch=asked.branch)
        if asked.commit is not None:
            judged = await judge_rules(evaluate, rules, request, timeout_s=JUDGE_TIMEOUT_S)
            return judged.decision.outcome is Access.PERMITTED
        programs = [rule.program() for rule in rules]
        checked = {}
        for op in asked.ops:
            check = Check(op, asked.branch)
            checked[check] = await evaluate(programs, check_activation(request, check), timeout_s=JUDGE_TIMEOUT_S)
        decision, _ = decide_unit(rules, (), checked, request)
        return decision.outcome is Access.PERMITTED

    def send(self, caller: Caller, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request as `caller`; return the answer."""
        now = int(time.time())
        claims = {"iss": "test", "sub": caller.name, "upn": caller.name, "groups": list(caller.roles)}
        token = jwt.encode({"alg": "RS256"}, {**claims, "iat": now, "exp": now + 600}, self.key)
        return self.http.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})


def _is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == httpx.codes.FORBIDDEN or "AccessCheckException" in answer.text


ADMIN: Final = Caller(name="root", roles=("admin",))


def random_caller(random: Random, sets: int) -> Caller:
    """Return a caller with one of the sets of rules."""
    groups = random.sample(GROUPS, random.randint(0, len(GROUPS)))
    return Caller(name=random.choice(NAMES), roles=(f"set-{random.randrange(sets)}", *groups))


@contextmanager
def start_ruled_nessie(cloud: Cloud, file: str, directory: Path) -> Iterator[RuledNessie]:
    """
    Yield a server that judges by the text of a rule file; it has two namespaces with tables, on three branches.
    """
    private = generate_private_key(public_exponent=65_537, key_size=2_048)
    written = directory / "rules.properties"
    written.write_text(file)
    settings = {
        "nessie.server.authentication.enabled": "true",
        "nessie.server.authorization.enabled": "true",
        "smallrye.config.locations": str(written),
        "quarkus.oidc.tenant-enabled": "true",
        "quarkus.oidc.public-key": _public(private),
        "quarkus.oidc.client-id": "nessie",
    }
    rules = tuple(
        JudgedRule(id=one.id, version=1, effect=Effect.PERMIT, expression=one.expression, vocabulary=EACH_CHECK)
        for one in parse_rule_file(file).rules
    )
    with (
        start_nessie(cloud, more=settings) as nessie,
        httpx.Client(base_url=nessie.url, trust_env=False, timeout=60) as http,
    ):
        ruled = RuledNessie(nessie=nessie, file=file, rules=rules, key=RSAKey.import_key(private), http=http)
        _furnish(ruled)
        yield ruled


def _furnish(ruled: RuledNessie) -> None:
    at = _namespaces(MAIN)
    bodies: list[tuple[str, Any]] = []
    for namespace in NAMESPACES:
        bodies.append((at, {"namespace": [namespace]}))
        bodies += [(f"{at}/{namespace}/tables", _new_table(table)) for table in TABLES]
    bodies.append((f"{at}/shop/views", view_created(VIEW)))
    for path, body in bodies:
        ruled.send(ADMIN, "POST", path, body).raise_for_status()
    reference = ruled.send(ADMIN, "GET", f"/api/v2/trees/{MAIN}").json()["reference"]
    for branch in REFERENCES[1:]:
        ruled.send(ADMIN, "POST", f"/api/v2/trees?name={branch}&type=BRANCH", reference).raise_for_status()


def _public(private: RSAPrivateKey) -> str:
    return base64.b64encode(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
