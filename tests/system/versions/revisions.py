"""Read the code of other versions from the repository's history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The first revision whose clients the simulator can run. It stands for the last release
# until there is one.
OLDEST = "50a625bf"


def last_release() -> str:
    """Return the last tag, or OLDEST if nothing was tagged."""
    try:
        return _git("describe", "--tags", "--abbrev=0").decode().strip()
    except subprocess.CalledProcessError:
        return OLDEST


def extract(revision: str, folder: Path) -> None:
    """Write the package of a revision to a folder.

    Raises LookupError if the revision isn't in the history, such as in a shallow clone.
    """
    try:
        archive = _git("archive", "--format=tar", revision, "kinesumer")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise LookupError(f"no revision {revision} in this history") from error
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def _git(*arguments: str) -> bytes:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return done.stdout
