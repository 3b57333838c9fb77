"""Provide a shared credentials file whose keys are replaced, as helpers for SSO do."""

from __future__ import annotations

import threading
from pathlib import Path

from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.identity import Credentials


class KeyFile:
    """A file with the keys of the embedded AWS's default account."""

    def __init__(self, aws: EmbeddedAws, path: Path) -> None:
        self.path = path
        self._aws = aws
        self.write(aws.account())

    def environment(self) -> dict[str, str]:
        """Return the variables that direct AWS's SDKs to the server and to the file."""
        variables = self._aws.environment()
        del variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        return {**variables, "AWS_SHARED_CREDENTIALS_FILE": str(self.path)}

    def write(self, keys: Credentials) -> None:
        """Replace the file's keys in one step."""
        new = self.path.with_suffix(".new")
        new.write_text(
            f"[default]\naws_access_key_id={keys.access_key_id}\n"
            f"aws_secret_access_key={keys.secret_access_key}\n"
            f"aws_session_token={keys.session_token or ''}\n"
        )
        new.rename(self.path)

    def rotate(self, late_seconds: float = 0.0) -> threading.Timer:
        """Replace the account's keys now, and the file's keys some seconds later."""
        keys = self._aws.replace_keys(lifetime_seconds=3600)
        timer = threading.Timer(late_seconds, self.write, [keys])
        if late_seconds:
            timer.start()
        else:
            self.write(keys)
        return timer
