# SPDX-License-Identifier: Apache-2.0
"""
Every error the gateway answers with: one root, one class for each thing a client would do differently.

Each class has its HTTP status and the Iceberg error type that clients map back to an exception of their own
(`ErrorModel.type` of the Iceberg REST specification). The message says what was expected and what was found.
"""

from __future__ import annotations

from typing import ClassVar


class GatewayError(Exception):
    """Anything the gateway refuses or cannot do; carries the answer to the client."""

    status: int = 500
    kind: str = "InternalServerError"


class BadRequestError(GatewayError):
    """The request is malformed; `field` names the part of it that is."""

    status = 400
    kind = "BadRequestException"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class ForwardingLoopError(BadRequestError):
    """The request has passed through this catalog before, or through too many gateways: it is not forwarded."""

    kind = "ForwardingLoopException"


class LookAlikeNameError(BadRequestError):
    """The name is confusable with a sibling's. The message does not name the sibling: the caller may not know of it."""

    kind = "LookAlikeNameException"

    def __init__(self, path: str, *, field: str | None = None) -> None:
        super().__init__(
            f"expected a name unlike its siblings, found {path!r:.300}, which differs from one of them only by "
            "case, by characters that look alike, or by its kind: use the one that is there, or choose another",
            field=field,
        )


class PlaceTakenError(BadRequestError):
    """The place is another table's, or another tenant's; the message does not say whose."""

    kind = "PlaceTakenException"


class UnauthorizedError(GatewayError):
    """No credentials, or credentials that are unknown, revoked or expired."""

    status = 401
    kind = "NotAuthorizedException"


class ForbiddenError(GatewayError):
    """An access rule or a policy says no; the message is its reason."""

    status = 403
    kind = "ForbiddenException"


class PolicyDeniedError(ForbiddenError):
    """A policy says no, where access was permitted."""


class PlaceContestedError(ForbiddenError):
    """The catalog was registered for a place that another tenant already held; the operator has to decide."""

    kind = "PlaceContestedException"


class UpstreamCredentialsError(GatewayError):
    """The upstream refuses the gateway's credentials; the client's own are valid."""

    status = 403
    kind = "UpstreamCredentialsException"


class UpstreamAnswerError(GatewayError):
    """The upstream certainly refused: the client receives its answer, `body` byte for byte."""

    def __init__(self, message: str, *, status: int, body: bytes, content_type: str, retry_after: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = "UpstreamAnswerException"
        self.body = body
        self.content_type = content_type
        self.retry_after = retry_after


class NotFoundError(GatewayError):
    """The namespace, table or catalog does not exist for this tenant; `kind` says which."""

    status = 404

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnsupportedOperationError(GatewayError):
    """The operation is known to the specification but not offered here."""

    status = 406
    kind = "UnsupportedOperationException"


class ConflictError(GatewayError):
    """Another request was first, or the object exists already; the client reloads and decides."""

    status = 409

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class RequirementFailedError(GatewayError):
    """A requirement of a commit does not hold; engines refresh and try again on 409."""

    status = 409
    kind = "CommitFailedException"


class TooLargeError(GatewayError):
    """The body is over its cap; it was not read to its end."""

    status = 413
    kind = "PayloadTooLargeException"


class UnsupportedEncodingError(GatewayError):
    """The body has a content coding that is not supported."""

    status = 415
    kind = "UnsupportedMediaTypeException"


class UnprocessableError(GatewayError):
    """Well-formed, but its content cannot be accepted (a policy that does not compile)."""

    status = 422
    kind = "UnprocessableEntityException"


class UnavailableError(GatewayError):
    """Nothing was changed and trying again may help; always answered with Retry-After."""

    status = 503
    kind = "ServiceUnavailableException"
    retry_after_s: ClassVar[int] = 1


class TooManyRequestsError(UnavailableError):
    """The tenant, or the caller, has sent too many requests in the last second; nothing was looked at."""

    status = 429
    kind = "TooManyRequestsException"


class UndecidableError(UnavailableError):
    """Access rules or policies could not be judged, so nothing was permitted."""


class UpstreamNotAllowedError(UnavailableError):
    """The upstream's address is one that the gateway may not connect to: nothing was sent. Says what to configure."""

    kind = "UpstreamNotAllowedException"


class CommitStateUnknownError(GatewayError):
    """The commit may or may not have happened: clients keep their files (500, 502 and 504 say so, 503 does not)."""

    status = 504
    kind = "CommitStateUnknownException"


class PartlyMadeError(CommitStateUnknownError):
    """Of commits that are forwarded one after another some were made, and the others certainly not."""

    status = 502
