"""Errors as exceptions: one class for each error of the daemon, in groups.

The classes at the end of this file mirror include/gpubuf/errors.def: code, HTTP status, whether the same request may
succeed later, and the title as docstring. A test compares the two lists.
"""
# fmt: off
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Type

__all__ = [
    "Error", "BadRequest", "AccessDenied", "NotFound", "Conflict", "AlreadyExists", "Busy", "ServerError",
    "Unavailable", "NoMemory", "Unreachable", "BrokenAnswer", "MalformedRequest", "AmbiguousLength", "IncompleteBody",
    "InvalidEncoding", "DigestMismatch", "UploadLengthMismatch", "InvalidName", "InvalidArgument", "UnknownParameter",
    "MalformedJson", "DuplicateKey", "UnknownField", "WrongType", "Unauthenticated", "Forbidden", "CrossOrigin",
    "NoRoute", "SessionNotFound", "BufferNotFound", "PoolNotFound", "StreamNotFound", "EventNotFound",
    "OperationNotFound", "DeviceNotFound", "UploadNotFound", "TokenNotFound", "MethodNotAllowed", "NotAcceptable",
    "RequestTimeout", "SessionExists", "BufferExists", "BufferBusy", "BufferPartial", "BufferSideCurrent",
    "SessionProtected", "PoolExists", "PoolBusy", "PoolProtected", "StreamExists", "StreamProtected", "EventExists",
    "OperationRunning", "OperationEnded", "Cancelled", "IdempotencyKeyInUse", "IdempotencyAnswerLost", "UploadBusy",
    "UploadIncomplete", "UploadCompleted", "UploadOverlap", "UploadOffsetMismatch", "UploadWrongKind", "ContentLost",
    "LengthRequired", "PreconditionFailed", "BodyTooLarge", "UriTooLong", "UnsupportedMediaType", "RangeNotSatisfiable",
    "MisdirectedRequest", "ShapeMismatch", "IdempotencyKeyReused", "UnsupportedArray", "HeadersTooLarge", "Internal",
    "StoreFailed", "DeviceError", "Unsupported", "Draining", "Saturated", "TimedOut", "DeviceLost", "OutOfMemory",
    "QuotaExceeded", "LimitReached", "PinnedLimitReached", "TooManyRequests", "StreamHeld", "Mapped", "Sealed",
    "LocalOnly", "LeaseNotFound", "MapNotPermitted", "TlsFailed", "BadCall", "BadArgument", "BadType", "Closed",
    "Escaped", "Adopted", "CannotAdopt", "StorageFull", "StoreUnavailable", "StorageFailed", "StorageUnavailable",
    "ContentDamaged", "NotLoaded", "CheckpointNotFound", "CheckpointExists", "CheckpointIncomplete", "OwnerAbsent",
    "OwnerUnknown", "DirectoryUnavailable", "NodeUnreachable", "NoNodeFits", "TicketInvalid", "NodeNotFound",
    "NodeAlive", "NotHere", "OwnerUncertain", "Superseded", "SourceUnreachable", "SourceRefused", "SourceChanged",
    "SourceNotPermitted", "SessionMoving", "SocketLost", "CopiesRemain", "TenantNotFound", "TenantQuotaExceeded",
    "DependencyFailed", "TensorNotFound", "SourceNotFound",
]

_by_code: Dict[str, Type["Error"]] = {}


class Error(Exception):
    """Base class of all errors of this package, with the daemon's answer if there was one.

    Attributes:
        code: the daemon's stable identifier, such as ``buffer_not_found``; ``unreachable`` or ``broken_answer`` without
            a usable answer.
        status: the HTTP status; 0 without a usable answer.
        title: the same for every error of this code.
        detail: the mistake, and the correct form.
        retryable: whether the same request may succeed later.
        cuda: ``{"name", "code", "call"}`` for an error of the device's driver, else None.
        limit_bytes, used_bytes, requested_bytes: the numbers of a limit if the daemon gave them, else None.
        retry_after: seconds after which the daemon takes the request again (``Retry-After``), as of
            ``TooManyRequests``; None if it did not say. ``Client(retries=N)`` repeats such a request after that time.
        holders: with ``Mapped``, the processes that map the bytes: ``[{"lease", "pid", "uid", "since", "mode"}]``; else
            empty.
        request_id: the request's id in the daemon's log; None without an answer.
        problem: the whole problem document (RFC 9457); empty without one.
    """

    code: str = "error"
    status: int = 0
    retryable: bool = False

    def __init__(self, detail: str = "", *, problem: Optional[Mapping[str, Any]] = None,
                 retry_after: Optional[int] = None) -> None:
        given: Mapping[str, Any] = problem or {}
        super().__init__(str(given.get("detail") or detail))
        self.problem: Dict[str, Any] = dict(given)
        self.detail: str = str(given.get("detail") or detail)
        self.title: str = str(given.get("title") or type(self).__doc__ or "").partition("\n")[0]
        self.code = str(given.get("code") or type(self).code)
        self.status = int(given.get("status") or type(self).status)
        self.retryable = bool(given.get("retryable", type(self).retryable))
        self.cuda: Optional[Dict[str, Any]] = given.get("cuda")
        self.holders: List[Dict[str, Any]] = given.get("holders") or []
        self.retry_after: Optional[int] = retry_after
        self.request_id: Optional[str] = given.get("request_id")
        self.limit_bytes: Optional[int] = given.get("limit_bytes")
        self.used_bytes: Optional[int] = given.get("used_bytes")
        self.requested_bytes: Optional[int] = given.get("requested_bytes")

    def __init_subclass__(cls, code: Optional[str] = None, status: int = 0, retryable: bool = False,
                          **more: Any) -> None:
        super().__init_subclass__(**more)
        if code is not None:
            cls.code, cls.status, cls.retryable = code, status, retryable
            _by_code[code] = cls

    def __str__(self) -> str:
        return f"{self.detail or self.title} [{self.code}]"

    def __reduce__(self) -> Any:
        return _again, (type(self), self.detail, self.problem, self.retry_after)


def _again(cls: Type[Error], detail: str, problem: Dict[str, Any], retry_after: Optional[int]) -> Error:
    return cls(detail, problem=problem, retry_after=retry_after)


def error_of(status: int, problem: Mapping[str, Any], retry_after: Optional[str] = None) -> Error:
    """The exception for an answer: by its code, or by its status if the code is newer than this package. retry_after:
    the header's text, which of other servers may be a date."""
    cls = _by_code.get(str(problem.get("code")))
    if cls is None:
        cls = _group_of.get(status) or (ServerError if status >= 500 else BadRequest)
    seconds = int(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return cls(problem={"status": status, **problem}, retry_after=seconds)


def not_pickled(thing: Any, instead: str) -> "BadType":
    """The error of pickling or copying what belongs to this process."""
    return BadType(f"a {type(thing).__name__} belongs to this process and is neither pickled nor copied: {instead}")


# --- groups -----------------------------------------------------------------------------------------------------------


class BadRequest(Error, ValueError):
    """The request is invalid"""


class AccessDenied(Error, PermissionError):
    """The caller may not do this"""


class NotFound(Error, LookupError):
    """The object does not exist"""


class Conflict(Error):
    """The present state forbids it"""


class AlreadyExists(Conflict):
    """An object of that name exists"""


class Busy(Conflict):
    """The object is in use"""


class ServerError(Error):
    """The daemon or its device failed"""


class Unavailable(Error):
    """The daemon cannot do it at present"""


class NoMemory(Error):
    """There is no memory left in the pool, or under a quota or limit"""


class Unreachable(Error, ConnectionError, code="unreachable", retryable=True):
    """The daemon was not reached, or the connection broke before an answer"""

    asked: bool = True  # False: no connection was made, so that the request was not carried out


class TlsFailed(Unreachable, code="tls_failed", retryable=False):
    """There is no connection by TLS that can be trusted"""


class BrokenAnswer(Error, ConnectionError, code="broken_answer", retryable=True):
    """The answer is none of gpubufd's, or ended too early"""


class BadCall(Error):
    """The call is wrong; no request was sent"""


class BadArgument(BadCall, ValueError, code="bad_argument"):
    """An argument has a value that it cannot have"""


class BadType(BadCall, TypeError, code="bad_type"):
    """An argument has the wrong type, or an array a type that cannot be stored"""


class Closed(BadCall, RuntimeError, code="closed"):
    """The client is closed"""


_group_of: Dict[int, Type[Error]] = {401: AccessDenied, 403: AccessDenied, 404: NotFound, 408: Unavailable,
                                     409: Conflict, 410: Conflict, 412: Conflict, 429: Unavailable, 503: Unavailable,
                                     507: NoMemory}

# --- one for each line of errors.def, in its order --------------------------------------------------------------------

class MalformedRequest(BadRequest, code="malformed_request", status=400): """The request is malformed"""
class AmbiguousLength(BadRequest, code="ambiguous_length", status=400): """The length of the body is ambiguous"""
class IncompleteBody(BadRequest, code="incomplete_body", status=400, retryable=True):
    """The body ended before its declared length"""
class InvalidEncoding(BadRequest, code="invalid_encoding", status=400): """The content encoding is broken"""
class DigestMismatch(BadRequest, code="digest_mismatch", status=400, retryable=True):
    """The bytes do not have the digest that was given"""
class UploadLengthMismatch(BadRequest, code="upload_length_mismatch", status=400):
    """The lengths given for the upload differ"""
class InvalidName(BadRequest, code="invalid_name", status=400): """The name is not permitted"""
class InvalidArgument(BadRequest, code="invalid_argument", status=400): """A value is not permitted"""
class UnknownParameter(BadRequest, code="unknown_parameter", status=400): """A query parameter is unknown"""
class MalformedJson(BadRequest, code="malformed_json", status=400): """The JSON is malformed"""
class DuplicateKey(BadRequest, code="duplicate_key", status=400): """A key is given twice"""
class UnknownField(BadRequest, code="unknown_field", status=400): """A field is unknown"""
class WrongType(BadRequest, code="wrong_type", status=400): """A field has the wrong type"""
class Unauthenticated(AccessDenied, code="unauthenticated", status=401): """A valid token is required"""
class Forbidden(AccessDenied, code="forbidden", status=403): """The token does not permit this"""
class LocalOnly(AccessDenied, code="local_only", status=403): """Only over the UNIX socket"""
class MapNotPermitted(AccessDenied, code="map_not_permitted", status=403): """Mapping is not permitted"""
class CrossOrigin(AccessDenied, code="cross_origin", status=403): """Requests of other origins' pages are refused"""
class NoRoute(NotFound, code="no_route", status=404): """There is nothing at this path"""
class SessionNotFound(NotFound, code="session_not_found", status=404): """No such session"""
class BufferNotFound(NotFound, code="buffer_not_found", status=404): """No such buffer"""
class PoolNotFound(NotFound, code="pool_not_found", status=404): """No such pool"""
class StreamNotFound(NotFound, code="stream_not_found", status=404): """No such stream"""
class EventNotFound(NotFound, code="event_not_found", status=404): """No such event"""
class OperationNotFound(NotFound, code="operation_not_found", status=404): """No such operation"""
class DeviceNotFound(NotFound, code="device_not_found", status=404): """No such device"""
class UploadNotFound(NotFound, code="upload_not_found", status=404): """No such upload"""
class LeaseNotFound(NotFound, code="lease_not_found", status=404): """No such lease"""
class TokenNotFound(NotFound, code="token_not_found", status=404): """No such token"""
class MethodNotAllowed(BadRequest, code="method_not_allowed", status=405): """The method is not allowed here"""
class NotAcceptable(BadRequest, code="not_acceptable", status=406): """No acceptable representation"""
class RequestTimeout(Unavailable, code="request_timeout", status=408, retryable=True):
    """The request took too long to arrive"""
class SessionExists(AlreadyExists, code="session_exists", status=409): """The session exists"""
class BufferExists(AlreadyExists, code="buffer_exists", status=409): """The buffer exists"""
class BufferBusy(Busy, code="buffer_busy", status=409, retryable=True): """The buffer is in use"""
class BufferPartial(Conflict, code="buffer_partial", status=409): """The buffer holds a broken in-place upload"""
class BufferSideCurrent(Conflict, code="buffer_side_current", status=409):
    """The only current side of the buffer cannot be released"""
class Mapped(Busy, code="mapped", status=409, retryable=True): """Other processes map the bytes"""
class Sealed(Conflict, code="sealed", status=409): """The buffer is sealed"""
class SessionProtected(Conflict, code="session_protected", status=409): """This session cannot be removed"""
class PoolExists(AlreadyExists, code="pool_exists", status=409): """The pool exists"""
class PoolBusy(Busy, code="pool_busy", status=409, retryable=True): """Buffers live in the pool"""
class PoolProtected(Conflict, code="pool_protected", status=409): """This pool cannot be changed or removed"""
class StreamExists(AlreadyExists, code="stream_exists", status=409): """The stream exists"""
class StreamProtected(Conflict, code="stream_protected", status=409): """This stream cannot be removed"""
class EventExists(AlreadyExists, code="event_exists", status=409): """The event exists"""
class OperationRunning(Conflict, code="operation_running", status=409):
    """The operation is running and cannot be cancelled"""
class OperationEnded(Conflict, code="operation_ended", status=409): """The operation has ended"""
class Cancelled(Conflict, code="cancelled", status=409, retryable=True): """The work was cancelled"""
class IdempotencyKeyInUse(Conflict, code="idempotency_key_in_use", status=409, retryable=True):
    """The first request with this key is under way"""
class IdempotencyAnswerLost(Conflict, code="idempotency_answer_lost", status=409):
    """The request was carried out, and its answer is lost"""
class UploadBusy(Busy, code="upload_busy", status=409, retryable=True): """Another request uses the upload"""
class UploadIncomplete(Conflict, code="upload_incomplete", status=409): """Bytes of the upload are missing"""
class UploadCompleted(Conflict, code="upload_completed", status=409): """The upload is completed"""
class UploadOverlap(Conflict, code="upload_overlap", status=409): """The part cuts through one that arrived"""
class UploadOffsetMismatch(Conflict, code="upload_offset_mismatch", status=409):
    """The upload stands at another offset"""
class UploadWrongKind(Conflict, code="upload_wrong_kind", status=409): """The upload does not take bytes in that way"""
class ContentLost(Conflict, code="content_lost", status=410): """The bytes of the buffer are lost"""
class LengthRequired(BadRequest, code="length_required", status=411): """The length of the body is required"""
class PreconditionFailed(Conflict, code="precondition_failed", status=412): """A precondition failed"""
class BodyTooLarge(BadRequest, code="body_too_large", status=413): """The body is too large"""
class UriTooLong(BadRequest, code="uri_too_long", status=414): """The URI is too long"""
class UnsupportedMediaType(BadRequest, code="unsupported_media_type", status=415): """The media type is not supported"""
class RangeNotSatisfiable(BadRequest, code="range_not_satisfiable", status=416): """The range is not satisfiable"""
class MisdirectedRequest(BadRequest, code="misdirected_request", status=421):
    """This daemon does not answer to that host name"""
class ShapeMismatch(BadRequest, code="shape_mismatch", status=422): """Shape and dtype do not match the bytes"""
class IdempotencyKeyReused(BadRequest, code="idempotency_key_reused", status=422):
    """The key was used for another request"""
class UnsupportedArray(BadRequest, code="unsupported_array", status=422): """The array cannot be stored"""
class HeadersTooLarge(BadRequest, code="headers_too_large", status=431): """The header fields are too large"""
class Internal(ServerError, code="internal", status=500): """Internal error"""
class StoreFailed(ServerError, code="store_failed", status=500, retryable=True): """The database refused the change"""
class DeviceError(ServerError, code="device_error", status=500, retryable=True): """The device reported an error"""
class Unsupported(ServerError, NotImplementedError, code="unsupported", status=501): """Not supported by this device"""
class Draining(Unavailable, code="draining", status=503, retryable=True): """The daemon is stopping"""
class Saturated(Unavailable, code="saturated", status=503, retryable=True): """The daemon is at a limit"""
class TimedOut(Unavailable, TimeoutError, code="timed_out", status=503, retryable=True):
    """The work did not finish in the permitted time"""
class DeviceLost(Unavailable, code="device_lost", status=503): """The device is lost; the daemon must be restarted"""
class OutOfMemory(NoMemory, MemoryError, code="out_of_memory", status=507, retryable=True):
    """There is not enough free memory"""
class QuotaExceeded(NoMemory, code="quota_exceeded", status=507): """The session's quota is exceeded"""
class LimitReached(NoMemory, code="limit_reached", status=507): """A limit of the daemon is reached"""
class Escaped(Conflict, code="escaped", status=409): """A process may write the bytes without a lease"""
class Adopted(Conflict, code="adopted", status=409): """Another process owns the buffer's memory"""
class CannotAdopt(BadRequest, code="cannot_adopt", status=422): """The memory cannot be adopted"""
class StorageFull(ServerError, code="storage_full", status=507, retryable=True):
    """The disk of the state folder is full"""
class StoreUnavailable(Unavailable, code="store_unavailable", status=503, retryable=True):
    """The database takes no changes"""
class StreamHeld(Busy, code="stream_held", status=409, retryable=True): """The stream is held"""
class PinnedLimitReached(NoMemory, MemoryError, code="pinned_limit_reached", status=507, retryable=True):
    """The host's page-locked memory is at its limit"""
class TooManyRequests(Unavailable, code="too_many_requests", status=429, retryable=True):
    """The client is at a bound of its own"""
class StorageFailed(ServerError, code="storage_failed", status=500, retryable=True):
    """The disk did not take the bytes"""
class StorageUnavailable(Unavailable, code="storage_unavailable", status=503, retryable=True):
    """The disk takes no bytes at present"""
class ContentDamaged(Conflict, code="content_damaged", status=410): """The stored bytes are damaged"""
class NotLoaded(Unavailable, code="not_loaded", status=503, retryable=True):
    """The bytes are on disk and not in memory"""
class CheckpointNotFound(NotFound, code="checkpoint_not_found", status=404): """No such checkpoint"""
class CheckpointExists(AlreadyExists, code="checkpoint_exists", status=409): """A checkpoint of that name exists"""
class CheckpointIncomplete(Conflict, code="checkpoint_incomplete", status=409): """The checkpoint is not complete"""
class OwnerAbsent(Unavailable, code="owner_absent", status=503, retryable=True):
    """The node that has the session is not there"""
class OwnerUnknown(Unavailable, code="owner_unknown", status=503, retryable=True):
    """Which node has the session is not known"""
class DirectoryUnavailable(Unavailable, code="directory_unavailable", status=503, retryable=True):
    """The fleet's directory does not answer"""
class NodeUnreachable(Unavailable, code="node_unreachable", status=503, retryable=True):
    """The node cannot be reached from here"""
class NoNodeFits(NoMemory, code="no_node_fits", status=507, retryable=True):
    """No node of the fleet takes the session"""
class TicketInvalid(AccessDenied, code="ticket_invalid", status=401): """The ticket is not valid"""
class NodeNotFound(NotFound, code="node_not_found", status=404): """No such node"""
class NodeAlive(Conflict, code="node_alive", status=409): """The node is alive"""
class NotHere(Conflict, code="not_here", status=409): """The session is at another node"""
class OwnerUncertain(Unavailable, code="owner_uncertain", status=503, retryable=True):
    """The node does not know whether the session is still its own"""
class Superseded(Conflict, code="superseded", status=409): """Another node has the session now"""
class SourceUnreachable(Unavailable, code="source_unreachable", status=502, retryable=True):
    """The source of the copy does not answer"""
class SourceRefused(ServerError, code="source_refused", status=502):
    """The source of the copy does not give the bytes"""
class SourceChanged(Conflict, code="source_changed", status=409, retryable=True):
    """The source of the copy has changed"""
class SourceNotPermitted(AccessDenied, code="source_not_permitted", status=403):
    """The daemon may not copy from there"""
class SessionMoving(Unavailable, code="session_moving", status=503, retryable=True):
    """The session is being handed to another node"""
class CopiesRemain(Conflict, code="copies_remain", status=409, retryable=True):
    """Other nodes may have copies of what had the name"""
class TenantNotFound(NotFound, code="tenant_not_found", status=404): """No such tenant"""
class TenantQuotaExceeded(NoMemory, code="tenant_quota_exceeded", status=507): """The tenant's quota is exceeded"""
class SocketLost(Unavailable, code="socket_lost", status=503, retryable=True):
    """Clients cannot reach a socket of the daemon"""
class DependencyFailed(Conflict, code="dependency_failed", status=409): """An earlier request on the stream failed"""
class TensorNotFound(NotFound, KeyError, code="tensor_not_found", status=404): """No such tensor"""
class SourceNotFound(NotFound, code="source_not_found", status=404): """No such file to copy from"""
