"""Find out whether a few variables of the environment say all about calls to AWS.

If they do, botocore would decide the same. But it takes 0.3 s of CPU time to import it,
aiobotocore and aiohttp in each of the processes that Spark starts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import CredentialRetrievalError

from kinesumer.aws.credentials import FrozenCredentials, Keys

if TYPE_CHECKING:
    from collections.abc import Mapping

ID, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
# The variables of AWS that are read here or in Spark's options, and those that change
# neither the keys nor a call. With another one, botocore decides.
_KNOWN = re.compile(
    f"{ID}|{SECRET}|{TOKEN}|AWS_REGION|AWS_DEFAULT_REGION|AWS_ENDPOINT_URL(_[A-Z]+)?|"
    "AWS_CA_BUNDLE|AWS_EC2_METADATA_DISABLED|AWS_EXECUTION_ENV"
)
# Other variables that change how botocore sends a call.
_OTHERS = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_FILES = ("~/.aws/config", "~/.aws/credentials")


def environment_keys(environ: Mapping[str, str] = os.environ) -> EnvironmentKeys | None:
    """Return the source of the environment's keys, or None if botocore must decide."""
    if not (environ.get(ID) and environ.get(SECRET)):
        return None
    for name in map(str.upper, environ):
        if name in _OTHERS or (name.startswith("AWS_") and not _KNOWN.fullmatch(name)):
            return None
    # Path.expanduser() fails for a user without a home directory.
    if any(Path(os.path.expanduser(file)).exists() for file in _FILES):
        return None
    return EnvironmentKeys(environ)


class EnvironmentKeys:
    """The keys in the environment, where botocore looks for keys first."""

    method = "env"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def fetch(self) -> Keys:
        """Return the keys that the variables have now. Raise an error without keys."""
        key_id, secret = self._environ.get(ID), self._environ.get(SECRET)
        if not key_id or not secret:
            raise CredentialRetrievalError(
                provider=self.method, error_msg=f"{ID} or {SECRET} is not set any more"
            )
        token = self._environ.get(TOKEN) or None
        return Keys(FrozenCredentials(key_id, secret, token))
