"""``python -m kinesumer.ops.cli``: the same as the command ``kinesumer``."""

from __future__ import annotations

from kinesumer.runtime.extras import require_cli


def main() -> None:
    """Run the command, or exit with what to install if its extra is missing."""
    require_cli()
    from kinesumer.ops.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
