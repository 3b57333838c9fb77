"""``python -m kinesumer.cli``: the same as the command ``kinesumer``."""

from kinesumer.cli.main import main

if __name__ == "__main__":
    main()
