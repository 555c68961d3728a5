"""What obstore raises, as errors of rekord. Its messages quote the answer of the server, and never credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.object_clients import ObjectAddress, missing_credentials_error, unusable_key_error

_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_STATUS = re.compile(r"status code: (\d{3})")
_INVALID_PATH = re.compile(r'[Pp]ath "((?:[^"\\]|\\.){0,900})"')

_CREDENTIAL_CODES: Final = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
}
_SKEW_CODES: Final = {"RequestTimeTooSkewed", "RequestExpired"}
_THROTTLE_CODES: Final = {
    "SlowDown",
    "TooManyRequests",
    "Throttling",
    "RequestLimitExceeded",
    "ServerBusy",
}
_UNDECIDED_CODES: Final = {"ConditionalRequestConflict", "OperationAborted"}
_BUCKET_CODES: Final = {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "ContainerBeingDeleted"}
_REGION_CODES: Final = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_METADATA_HOSTS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Where machines in a cloud get credentials, asked last."""

_NO_CREDENTIALS = re.compile(
    r"Missing ?(AccessKeyId|SecretAccessKey)|[Cc]redential|Account must be specified|MissingAccount"
)
_CHECK_URL = "check the URL: upper and lower case differ"


class ConflictError(DatasetError):
    """A conditional write that another writer was faster at: the object exists, or has another ETag."""

    @property
    def family(self) -> str:
        return DatasetError.__name__


def conflict_error(path: str, found: str) -> ConflictError:
    """The error for a conditional write that was refused."""
    return ConflictError(
        "X578",
        location=Location(path=path),
        expected="no other writer",
        found=found,
        do="run the same command again when the other writer has finished",
    )


def replaced_object_error(path: str) -> RekordError:
    """The error for an object that is another one than when it was opened."""
    return error(
        "X548",
        location=Location(path=path),
        expected="the object that was opened",
        found="another one under this name",
        do="open the dataset again when no process writes to it",
    )


@contextmanager
def translate_object_errors(address: ObjectAddress, *, is_write: bool = False) -> Iterator[None]:
    """Raise errors of rekord for those of obstore."""
    try:
        yield
    except (RekordError, ImportError, MemoryError):
        raise
    except Exception as failure:
        raise translate_object_failure(address, failure, is_write=is_write) from None


def is_conflict(failure: Exception) -> bool:
    """Whether the server refused a conditional request."""
    name = type(failure).__name__
    return name in ("AlreadyExistsError", "PreconditionError", "NotModifiedError") or (
        "Request precondition failure" in str(failure)
    )


def is_undecided(failure: Exception) -> bool:
    """Whether the server refused because a concurrent write was not decided yet."""
    return _answer(failure)[1] in _UNDECIDED_CODES


def is_missing(failure: Exception) -> bool:
    """Whether an object does not exist, though its bucket does."""
    return isinstance(failure, FileNotFoundError) and _answer(failure)[1] not in _BUCKET_CODES


def is_bad_range(failure: Exception) -> bool:
    """Whether an object has no byte of a range: an empty one has none at all."""
    return _answer(failure)[0] == 416


def is_refusal_without_reason(failure: Exception) -> bool:
    """Whether the answer has no body that tells why: those to HEAD have none."""
    return _answer(failure)[0] in (400, 403) and not _answer(failure)[1]


def _answer(failure: Exception) -> tuple[int, str]:
    """The status and the code of an answer, as far as there are."""
    text = str(failure)
    status, code = _STATUS.search(text), _CODE.search(text)
    return int(status[1]) if status else 0, code[1] if code else ""


def translate_object_failure(address: ObjectAddress, failure: Exception, *, is_write: bool = False) -> RekordError:
    """The error for what obstore raised."""
    text, name = str(failure), type(failure).__name__
    status, code = _answer(failure)
    where = Location(path=address.path)
    message = _MESSAGE.search(text)
    reported = ": ".join(part for part in (code, message[1].strip().partition("\n")[0] if message else "") if part)[
        :160
    ]
    found = reported or (f"status {status}" if status else _cause(text))
    if any(host in text for host in _METADATA_HOSTS) or (not status and _NO_CREDENTIALS.search(text)):
        return missing_credentials_error(
            address.path, address.provider, "none in the environment, in files or from the machine"
        )
    if code in _BUCKET_CODES:
        return error("X568", location=where, found=found, do="check the name of the bucket, and the endpoint")
    if name == "InvalidPathError":
        wrong = _INVALID_PATH.search(text)
        key = wrong[1].encode().decode("unicode_escape", "replace") if wrong and wrong[1].isascii() else ""
        return unusable_key_error(address.root + (key if key.isprintable() else ""), key)
    if is_conflict(failure):
        if is_write:
            return conflict_error(address.path, found)
        return replaced_object_error(address.path)
    if isinstance(failure, FileNotFoundError) or status == 404:
        return error("X501", location=where, found="no such object", do=_CHECK_URL)
    if code in _REGION_CODES or status in (301, 307) or "redirect without LOCATION" in text:
        region = _REGION.search(text)
        return error(
            "X567",
            location=where,
            expected=f"region {region[1]}" if region else "the region of the bucket",
            found=reported or "a redirect to another region",
            do=f"export AWS_REGION={region[1]}"
            if region
            else f"export AWS_REGION=REGION      (aws s3api head-bucket --bucket {address.bucket} shows it)",
        )
    if code in _SKEW_CODES:
        return error("X569", location=where, found=found, do="timedatectl      (and set the clock of this machine)")
    if code in _CREDENTIAL_CODES:
        return error("X556", location=where, found=found, do="renew the credentials, then run the same command again")
    if status in (401, 403) or name in ("PermissionDeniedError", "UnauthenticatedError"):
        rights = "write" if is_write else "list and read"
        return error("X556", location=where, found=found, do=f"use credentials that may {rights} this path")
    if status == 416:
        return error(
            "X557",
            location=where,
            expected="a range within the object",
            found=found,
            do="open the dataset again: the file changed",
        )
    if status == 429 or code in _THROTTLE_CODES:
        return error(
            "X577", location=where, found=found, do="run the same command again later, or with fewer workers"
        )
    if "body error" in text or "IncompleteBody" in text:
        return error(
            "X557",
            location=where,
            expected="as many bytes as the response announced",
            found=found,
            do="run the same command again: the connection broke, and retries failed too",
        )
    return error(
        "X555", location=where, found=found, do="check the URL and the connection, then run the same command again"
    )


def _cause(text: str) -> str:
    """The sentence of obstore's message that says what happened, without its structure."""
    first = re.sub(r"\?\S+", "", " ".join(text.partition("Debug source")[0].split()))  # a query can hold a signature
    for begin in ("HTTP error: ", "error: "):
        if begin in first:
            first = first.rpartition(begin)[2]
    inner = re.search(
        r'error: "([^"]{1,80})"|message: "([^"]{1,80})"|kind: (ConnectionRefused|TimedOut|NotFound)', text
    )
    detail = next((part for part in inner.groups() if part), "") if inner else ""
    return f"{first[:120]}{f': {detail}' if detail and detail not in first else ''}"
