# SPDX-License-Identifier: Apache-2.0
"""
Policies in files looked at before they are saved: their examples, what looks wrong, and what they compile to.

The same as the commands `lakeproof policies test`, `lint` and `compile` say, of the text of the files. Nothing is
saved, and nothing in force is read. It takes the right to write a draft of each of these policies
(`CONFIG_POLICY_DRAFT` at its id; of an expression without a file, without one): it takes processors as that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from gateway.admin.limits import check_expression
from gateway.admin.policy_lint import lint
from gateway.admin.policy_reports import Author, compile_policy, holds, run_examples, savable
from gateway.errors import BadRequestError
from gateway.http.admin_routes import Body, body_as, may_edit
from gateway.http.request import authenticate
from gateway.policy.policy_files import FILE_SIZE_BYTES_MAX, PolicyFile, parse_policy

router = APIRouter(prefix="/v1/policies")

POLICIES_MAX: Final = 20
BODY_SIZE_BYTES_MAX: Final = 2 * FILE_SIZE_BYTES_MAX
NAME_LENGTH_MAX: Final = 200
CALL_S: Final = 2.0
"""The longest call of the engine for one request: other tenants' use the same processes."""
MUTATION_S: Final = 10.0
LINT_S: Final = 10.0
"""For one policy; a command has more."""
DRAFT: Final = "policy_draft"


class PolicyFileBody(Body):
    """The text of a policy's file, as `lakeproof policies apply` reads it; errors name it by `name`."""

    text: str
    name: str = Field(default="policy.yaml", min_length=1, max_length=NAME_LENGTH_MAX)


class PolicyFilesBody(Body):
    """Files with a policy each, of different ids."""

    policies: list[PolicyFileBody] = Field(min_length=1, max_length=POLICIES_MAX)


class PolicyTestBody(PolicyFilesBody):
    """
    Policies whose examples are run; with `coverage`, also which branches no example takes, and with `mutation`, which
    mistakes none notices.
    """

    coverage: bool = False
    mutation: bool = False


class PolicyCompileBody(Body):
    """Policies to compile, or one `expression` without a file."""

    policies: list[PolicyFileBody] = Field(default_factory=list, max_length=POLICIES_MAX)
    expression: str | None = None


B = TypeVar("B", bound=Body)


@router.post("/test")
async def test_policies(request: Request) -> Response:
    """Run the examples of policy files; `clean` says whether all compile and hold. Nothing is saved."""
    body = await body_as(request, PolicyTestBody, size_bytes_max=BODY_SIZE_BYTES_MAX)
    policies = savable(await policies_of(body.policies))
    author = await _author(request, [policy.id for policy in policies])
    asked = {"coverage": body.coverage, "mutation": body.mutation}
    tested = [
        {"coverage": None, "mutation": None, **await run_examples(author, policy, **asked)} for policy in policies
    ]
    return JSONResponse({"clean": all(map(holds, tested)), "policies": tested})


@router.post("/lint")
async def lint_policies(request: Request) -> Response:
    """Say what looks wrong in policy files although it compiles, and what does not. Nothing is saved."""
    body = await body_as(request, PolicyFilesBody, size_bytes_max=BODY_SIZE_BYTES_MAX)
    policies = savable(await policies_of(body.policies))
    author = await _author(request, [policy.id for policy in policies])
    findings = await lint(author, author.evaluate, policies, timeout_s=LINT_S)
    shown = [asdict(finding) for finding in findings]
    return JSONResponse({"clean": not shown, "policies": len(policies), "findings": shown})


@router.post("/compile")
async def compile_policies(request: Request) -> Response:
    """Show what policies, or an expression, read and call, and how their cost grows. Nothing is saved."""
    body = await body_as(request, PolicyCompileBody, size_bytes_max=BODY_SIZE_BYTES_MAX)
    if bool(body.policies) == (body.expression is not None):
        raise BadRequestError("expected either policies or an expression", field="policies")
    if body.expression is not None:
        check_expression(body.expression)
        policies: tuple[PolicyFile, ...] = (PolicyFile(name="", id="", expression=body.expression, message=""),)
    else:
        policies = savable(await policies_of(body.policies))
    author = await _author(request, [policy.id for policy in policies])
    compiled = [await compile_policy(author, policy) for policy in policies]
    nothing: dict[str, Any] = {"expression": None, "reads": [], "functions": [], "cost": None}
    return JSONResponse(
        {
            "clean": all(one["refused"] is None for one in compiled),
            "policies": [{**nothing, **one} for one in compiled],
        }
    )


async def policies_of(files: Sequence[PolicyFileBody]) -> list[PolicyFile]:
    """
    Return the policies that files say.

    Raises:
        PolicyFileError: if one is refused; says where.
    """

    def parsed() -> list[PolicyFile]:
        return [parse_policy(file.text.encode("utf-8", "surrogatepass"), name=file.name) for file in files]

    return await asyncio.to_thread(parsed)


async def _author(request: Request, ids: Sequence[str]) -> Author:
    """Return the engine as the caller may use it, who may write a draft of each of these policies."""
    for policy_id in ids:
        await may_edit(request, DRAFT, policy_id)
    gateway, caller = await authenticate(request)
    return Author(engine=gateway.authors, log_id=caller.log_id, mutation_s=MUTATION_S, call_s=CALL_S)
