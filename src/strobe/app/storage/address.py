"""Addresses such as ``s3://bucket/prefix``. Imports no torch and no client."""

from strobe.errors import ConfigError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")  # what obstore opens


def is_remote(root: str) -> bool:
    """Whether a root is an address and no folder of this machine."""
    return "://" in root


def check_slashes(key: str, root: str) -> None:
    """Raise a :class:`ConfigError` for a folder that was meant as an address, such as ``s3:/bucket``."""
    scheme, colon, rest = root.partition(":")
    if colon and scheme in SCHEMES:
        raise ConfigError(f"{key}={root} is not a folder; did you mean {scheme}://{rest.lstrip('/')}?")


def check_address(key: str, address: str) -> None:
    """Raise a :class:`ConfigError` for an address that cannot be used; one that holds a password is not repeated."""
    check_open(key, address)
    scheme, _, rest = address.partition("://")
    if scheme == "r2":
        bare = rest.strip("/") or "BUCKET"
        raise ConfigError(
            f"{key}={address}: give s3://{bare} and data.endpoint=https://ACCOUNT.r2.cloudflarestorage.com, which is "
            "how R2 is reached"
        )
    if scheme not in SCHEMES:
        raise ConfigError(
            f"{key}={address} is not an address of storage that can be read; it must begin with one of "
            f"{', '.join(f'{name}://' for name in SCHEMES)}"
        )
    if not rest.strip("/"):
        raise ConfigError(f"{key}={address} is not an address of storage; give one such as s3://BUCKET/FOLDER")


def check_open(key: str, address: str) -> None:
    """Raise a :class:`ConfigError` for an address that holds a password, without repeating it."""
    scheme, _, rest = address.partition("://")
    login, at, _ = rest.partition("/")[0].rpartition("@")
    container = scheme in ("abfs", "abfss") and ":" not in login  # abfss://CONTAINER@ACCOUNT.dfs.core.windows.net
    if (at and not container) or "?" in rest:
        raise ConfigError(
            f"{key} holds a password or a signature, which would end in records; give the bare address, and the "
            "credentials in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
