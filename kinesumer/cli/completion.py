"""``kinesumer completion``: the script by which a shell completes commands."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
# The variable by which the script asks the command for completions.
VARIABLE = "_KINESUMER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the script by which a shell completes commands and options.

    Load it in the shell's configuration:

    \b
      bash, ~/.bashrc:    eval "$(kinesumer completion bash)"
      zsh, ~/.zshrc:      eval "$(kinesumer completion zsh)"
      fish, config.fish:  kinesumer completion fish | source
    """
    root = ctx.find_root()
    complete = SHELLS[shell](root.command, {}, "kinesumer", VARIABLE)
    # Not complete.source(): it also runs bash to check its version.
    click.echo(complete.source_template % complete.source_vars())
