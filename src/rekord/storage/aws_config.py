"""What `~/.aws/config` and `~/.aws/credentials` say about a profile: keys, region and endpoint.

Clients read the environment themselves, but not these files.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

_INDIRECT = ("role_arn", "sso_session", "sso_start_url", "credential_process", "login_session")
"""Settings of a profile that get keys from somewhere else."""


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """The settings of one profile. Secrets are not part of its repr."""

    name: str
    region: str | None = None
    endpoint_url: str | None = None
    keys: dict[str, str] = field(default_factory=dict, repr=False)  # as the client names them
    needs_boto3: bool = False
    exists: bool = False


def read_profile(environment: Mapping[str, str] = os.environ) -> AwsProfile:
    """The profile that `AWS_PROFILE` names, or the default one."""
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    config = _read(environment.get("AWS_CONFIG_FILE") or "~/.aws/config")
    secrets = _read(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")
    settings = {
        **_section(config, "default" if name == "default" else f"profile {name}"),
        **_section(secrets, name),
    }
    keys = {
        client_name: settings[file_name]
        for file_name, client_name in (
            ("aws_access_key_id", "access_key_id"),
            ("aws_secret_access_key", "secret_access_key"),
            ("aws_session_token", "session_token"),
        )
        if settings.get(file_name)
    }
    services = _section(config, f"services {settings.get('services', '')}")
    return AwsProfile(
        name=name,
        region=settings.get("region"),
        endpoint_url=_nested(services.get("s3", "")).get("endpoint_url") or settings.get("endpoint_url"),
        keys=keys if "access_key_id" in keys and "secret_access_key" in keys else {},
        needs_boto3=any(settings.get(one) for one in _INDIRECT),
        exists=bool(settings),
    )


def _read(path: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, default_section="\0")
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        # Other tools report what is wrong with it; keys may still be in the environment.
        return configparser.RawConfigParser()
    return parser


def _section(parser: configparser.RawConfigParser, name: str) -> dict[str, str]:
    return dict(parser.items(name)) if parser.has_section(name) else {}


def _nested(text: str) -> dict[str, str]:
    """The indented settings below a name."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in pairs if found}
