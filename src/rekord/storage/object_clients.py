"""Clients of object storage: one for each process, bucket and configuration, made when first used.

Endpoint, region and credentials come from where other tools of a service find them: the environment, `~/.aws`, the
files that `GOOGLE_APPLICATION_CREDENTIALS` and `gcloud` name, or the machine itself. They stay in the client.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import IO, Any, Final, Literal, cast

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.aws_config import read_profile

Provider = Literal["s3", "gs", "az"]

_PROVIDERS: Final[dict[str, Provider]] = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "az"),
}

_EXTRAS: Final[dict[Provider, str]] = {"s3": "s3", "gs": "gcs", "az": "azure"}

TIMEOUT_VARIABLE = "REKORD_REMOTE_TIMEOUT"
"""The environment variable for how many seconds a failing request is retried."""

DEFAULT_TIMEOUT_SECONDS = 60.0

_CONNECT_TIMEOUT = timedelta(seconds=5)
_STALL_TIMEOUT = timedelta(seconds=20)
"""How long an answer may pause."""

_REQUEST_TIMEOUT = timedelta(minutes=5)
"""How long a request may take that makes progress: 8 MB at 30 kB/s."""

_MAX_RETRIES = 12


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """A URL of object storage, taken apart. `key` may be a prefix; it has no slash at its ends."""

    path: str
    provider: Provider
    bucket: str
    key: str
    account: str | None = None  # of Azure, where the URL names it

    @property
    def root(self) -> str:
        """The URL of the bucket, as it was written, with a slash at its end."""
        scheme, _, rest = self.path.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/"


def parse_address(path: str) -> ObjectAddress:
    """The bucket and key of a URL. Characters of a key stand for themselves: `%20` is no space."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    provider, account = _PROVIDERS[scheme], None
    if provider == "az" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if not bucket:
        raise error(
            "U605",
            f"{scheme}:// URL without a bucket",
            location=Location(path=path),
            expected=f"{scheme}://BUCKET/KEY",
            found=path[:60],
            do=f"use {scheme}://BUCKET/KEY",
        )
    key = key.removesuffix("/")
    if key and _find_unusable_part(key) is not None:
        raise unusable_key_error(path, key)
    return ObjectAddress(path, provider, bucket, key, account)


def _find_unusable_part(key: str) -> str | None:
    return next((part for part in key.split("/") if part in ("", ".", "..") or not part.isprintable()), None)


def unusable_key_error(path: str, key: str) -> RekordError:
    """The error for a key with a part that has no meaning in a path."""
    part = _find_unusable_part(key)
    return error(
        "X581",
        location=Location(path=path),
        expected="parts between slashes that are not empty, not `.` or `..`, and have no control characters",
        found=f"the part {part!r}"[:80] if part else "an empty part (`//`)",
        do="copy the object to another key with a tool of the service, then use that key",
    )


@dataclass(frozen=True, slots=True)
class ObjectClient:
    """A client of one bucket: obstore, and its store."""

    obstore: Any
    store: Any
    address: ObjectAddress

    def url(self, key: str) -> str:
        """The URL of a key in this bucket."""
        return self.address.root + key


_lock = threading.Lock()
_clients: dict[tuple[object, ...], ObjectClient] = {}
_process = os.getpid()


def get_client(address: ObjectAddress) -> ObjectClient:
    """The client for a URL."""
    global _process, _lock
    if _process != os.getpid():
        # The threads of a client do not survive a fork, and another thread may have held the lock.
        _lock, _process = threading.Lock(), os.getpid()
        _clients.clear()
    settings = _read_settings(os.environ)
    key = (address.provider, address.bucket, address.account, settings)
    found = _clients.get(key)
    if found is None:
        with _lock:
            found = _clients.get(key)
            if found is None:
                found = _clients[key] = _make_client(address, dict(settings))
    return found


def reset_clients() -> None:
    """Forget all clients, for example after `~/.aws/credentials` changed."""
    _clients.clear()


_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")


def _read_settings(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = (TIMEOUT_VARIABLE, "STORAGE_EMULATOR_HOST", "HOME")
    return tuple((name, value) for name, value in environment.items() if name.startswith(_PREFIXES) or name in names)


def _make_client(address: ObjectAddress, settings: Mapping[str, str]) -> ObjectClient:
    obstore = _import_obstore(address)
    retry_seconds = _read_timeout(settings)
    common = {
        "retry_config": {
            "max_retries": _MAX_RETRIES if retry_seconds > 0 else 0,
            "retry_timeout": timedelta(seconds=retry_seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=min(0.1, retry_seconds / 10)),
                "max_backoff": timedelta(seconds=8),
                "base": 2,
            },
        }
    }
    client_options: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "read_timeout": _STALL_TIMEOUT,
        "timeout": _REQUEST_TIMEOUT,
    }
    match address.provider:
        case "s3":
            store = _make_s3(obstore, address, settings, client_options, common)
        case "gs":
            store = _make_gcs(obstore, address, settings, client_options, common)
        case "az":
            store = _make_azure(obstore, address, settings, client_options, common)
    return ObjectClient(obstore, store, address)


def _make_s3(
    obstore: Any, address: ObjectAddress, settings: Mapping[str, str], client_options: dict[str, Any], common: Any
) -> Any:
    profile = read_profile(settings)
    config: dict[str, Any] = {}
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((settings[name] for name in names if settings.get(name)), None)
    if endpoint is None and profile.endpoint_url:
        config["endpoint"] = endpoint = profile.endpoint_url
    if endpoint is not None and endpoint.startswith("http://"):
        client_options["allow_http"] = True
    if not (settings.get("AWS_REGION") or settings.get("AWS_DEFAULT_REGION")) and profile.region:
        config["region"] = profile.region
    provider = None
    if not _has_own_credentials(settings):
        if profile.keys:
            config.update(profile.keys)
        elif profile.needs_boto3:
            provider = _boto3_provider(address, profile.name)
        elif settings.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise missing_credentials_error(address.path, "s3", "no keys in the environment or in ~/.aws")
    return obstore.store.S3Store(
        address.bucket, config=config, client_options=client_options, credential_provider=provider, **common
    )


def _has_own_credentials(settings: Mapping[str, str]) -> bool:
    """Whether the environment says where keys come from."""
    names = (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_SKIP_SIGNATURE",
    )
    return any(settings.get(name) for name in names)


def _boto3_provider(address: ObjectAddress, profile: str) -> Any:
    try:
        import boto3.session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise error(
            "U602",
            "the AWS profile gets its keys from a role, SSO or a program, which requires boto3",
            location=Location(path=address.path),
            expected="the package boto3",
            found="no such package",
            do="pip install boto3",
        ) from None
    try:
        return Boto3CredentialProvider(boto3.session.Session(profile_name=profile))
    except Exception as failure:
        raise missing_credentials_error(address.path, "s3", type(failure).__name__) from failure


def _make_gcs(
    obstore: Any, address: ObjectAddress, settings: Mapping[str, str], client_options: dict[str, Any], common: Any
) -> Any:
    config: dict[str, Any] = {}
    emulator = settings.get("STORAGE_EMULATOR_HOST")
    if emulator:
        endpoint = emulator if "://" in emulator else f"http://{emulator}"
        config |= {"base_url": endpoint.rstrip("/"), "bearer_token": "emulator"}
        client_options["allow_http"] = endpoint.startswith("http://")
    return obstore.store.GCSStore(address.bucket, config=config, client_options=client_options, **common)


def _make_azure(
    obstore: Any, address: ObjectAddress, settings: Mapping[str, str], client_options: dict[str, Any], common: Any
) -> Any:
    config: dict[str, Any] = {}
    pairs = [part.partition("=") for part in settings.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")]
    connection = {name.strip().lower(): value.strip() for name, _, value in pairs}
    for name, setting in (
        ("accountname", "account_name"),
        ("accountkey", "account_key"),
        ("sharedaccesssignature", "sas_key"),
        ("blobendpoint", "endpoint"),
    ):
        if connection.get(name):
            config[setting] = connection[name]
    if address.account is not None:
        config["account_name"] = address.account
    endpoint = (
        config.get("endpoint") or settings.get("AZURE_STORAGE_ENDPOINT") or settings.get("AZURE_ENDPOINT") or ""
    )
    emulates = settings.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("true", "1")
    client_options["allow_http"] = emulates or endpoint.startswith("http://")
    return obstore.store.AzureStore(address.bucket, config=config, client_options=client_options, **common)


def _read_timeout(settings: Mapping[str, str]) -> float:
    text = settings.get(TIMEOUT_VARIABLE)
    if not text:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise error(
            "U605",
            f"{TIMEOUT_VARIABLE} is not a number of seconds",
            expected="a number from 0 to 86400",
            found=text[:30],
            do=f"export {TIMEOUT_VARIABLE}={DEFAULT_TIMEOUT_SECONDS:.0f}",
        )
    return seconds


def missing_credentials_error(path: str, provider: Provider, found: str) -> RekordError:
    """The error for a service that needs credentials, of which none were found."""
    do = {
        "s3": "aws configure      (or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
        "for public data: export AWS_SKIP_SIGNATURE=true)",
        "gs": "gcloud auth application-default login      (for public data: export GOOGLE_SKIP_SIGNATURE=true)",
        "az": "export AZURE_STORAGE_ACCOUNT_NAME=ACCOUNT AZURE_STORAGE_ACCOUNT_KEY=KEY      "
        "(for public data: export AZURE_SKIP_SIGNATURE=true)",
    }[provider]
    return error("X566", location=Location(path=path), found=found, do=do)


_FIRST_PROCESS: Final = os.getpid()
_library: tuple[int, ModuleType] | None = None


def _import_obstore(address: ObjectAddress) -> Any:
    """obstore, in a form that works in this process."""
    global _library
    if _library is not None and _library[0] == os.getpid():
        return _library[1]
    was_loaded = "obstore" in sys.modules
    try:
        import obstore
        import obstore.store
    except ImportError:
        extra = _EXTRAS[address.provider]
        raise error(
            "U602",
            f"{address.path.partition('://')[0]}:// requires a package that is not installed",
            expected=f"the extra `{extra}`",
            found="no such package",
            do=f"pip install 'rekord[{extra}]'",
        ) from None
    # After a fork, the runtime of obstore has no threads, and a request would wait for ever.
    is_forked = was_loaded and os.getpid() != _FIRST_PROCESS
    _library = os.getpid(), _load_copy() if is_forked else obstore
    return _library[1]


def _load_copy() -> ModuleType:
    """obstore with a library of its own: the system gives a second load of the same file the state of the first."""
    name = "obstore._obstore"
    path = sys.modules[name].__file__
    assert path is not None
    before = {one: sys.modules.pop(one) for one in list(sys.modules) if one.partition(".")[0] == "obstore"}
    with _copy_library(path) as copy:
        try:
            loader = importlib.machinery.ExtensionFileLoader(name, copy)
            spec = importlib.util.spec_from_loader(name, loader)
            assert spec is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            loader.exec_module(sys.modules[name])
            import obstore
            import obstore.store

            return obstore
        finally:
            for one in [one for one in sys.modules if one.partition(".")[0] == "obstore"]:
                del sys.modules[one]
            sys.modules.update(before)


@contextmanager
def _copy_library(path: str) -> Iterator[str]:
    """A copy of a file, in memory where the system has such files; needed until it is loaded."""
    with _open_unnamed() as target, open(path, "rb") as library:
        shutil.copyfileobj(library, target, 1 << 20)
        target.flush()
        yield f"/proc/self/fd/{target.fileno()}" if isinstance(target.name, int) else target.name


def _open_unnamed() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("obstore"), "wb")
    return cast("IO[bytes]", tempfile.NamedTemporaryFile(suffix=".so"))
