"""Test the scripts by which shells complete commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_the_command(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_KINESUMER_COMPLETE={shell}_complete" in result.stdout


def test_bash_completes_commands(run: Run, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "kinesumer").write_text(
        f"#!/bin/sh\n{sys.executable} -m kinesumer.cli\n"
    )
    (tmp_path / "kinesumer").chmod(0o755)
    script = run("completion", "bash").stdout + (
        "\nCOMP_WORDS=(kinesumer com); COMP_CWORD=1\n"
        f"_kinesumer_completion {tmp_path}/kinesumer\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["completion"]
