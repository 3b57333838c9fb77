"""Adds to the package's metadata what depends on where it is built.

Hatchling runs this hook. KINESUMER_REPOSITORY_URL is the address of the repository,
e.g. ``https://github.com/OWNER/kinesumer``. If it is set, as it is for a release, the
metadata has the project's URLs, and the links of the long description are absolute.
Otherwise it has no URLs, and the long description has only the text of such links, and
no pictures.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# A Markdown picture, then a link, whose target is a file of the repository.
RELATIVE_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)\s]+)\)\n*")
RELATIVE_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


class RepositoryMetadata(MetadataHookInterface):
    """Sets ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields that pyproject.toml declares as dynamic."""
        url = os.environ.get("KINESUMER_REPOSITORY_URL", "").rstrip("/")
        readme = Path(self.root, "README.md").read_text()
        picture = rf"![\1]({url}/raw/HEAD/\2)\n\n" if url else ""
        link = rf"[\1]({url}/blob/HEAD/\2)" if url else r"\1"
        readme = RELATIVE_PICTURE.sub(picture, readme)
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": RELATIVE_LINK.sub(link, readme),
        }
        places = {
            "Homepage": "",
            "Repository": "",
            "Documentation": "/blob/HEAD/docs/index.md",
            "Issues": "/issues",
            "Changelog": "/blob/HEAD/CHANGELOG.md",
        }
        if url:
            metadata["urls"] = {name: url + place for name, place in places.items()}
