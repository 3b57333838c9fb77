"""Check the URLs of endpoints, and hide their passwords."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from kinesumer.errors import ConfigurationError
from kinesumer.runtime.text import SECRETS

# A password that was not encoded may have a slash, a question mark or a hash, and then
# what follows "://" is another part of the URL for a parser.
_USER = re.compile(r"://[^\s\"'<>]*@")
# The URLs in which what follows the first slash is a key, which may have an "@".
_KEYED = ("s3",)


def require_no_credentials(what: str, url: str) -> None:
    """Raise ConfigurationError if a URL has a user or password.

    AWS needs neither, since requests are signed. The error doesn't show the URL, so
    that the password isn't logged.
    """
    scheme, _, rest = url.partition("://")
    if "@" in (rest.partition("/")[0] if scheme in _KEYED else rest):
        raise ConfigurationError(f"{what} contains credentials: remove them")


def remember_passwords(urls: Iterable[str]) -> None:
    """Let the passwords of proxies be replaced in texts from outside."""
    for url in urls:
        user, _, _ = url.partition("://")[2].rpartition("@")
        name, _, password = user.partition(":")
        SECRETS.add(password)
        SECRETS.add(unquote(password))
        SECRETS.add(b64encode(unquote(f"{name}:{password}").encode()).decode())


def check_port(what: str, url: str) -> None:
    """Raise ConfigurationError for a URL with an invalid port."""
    try:
        # Check now, since an error in a later request would count as an outage.
        urlsplit(url).port  # noqa: B018  raises ValueError
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}; correct the URL") from None


def masked(text: str) -> str:
    """Return text after replacing the user names and passwords in its URLs."""
    return _USER.sub("://***@", text)
