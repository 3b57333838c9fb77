"""Test that no input makes the compiled decoder read or write beside its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kinesumer.wire.cbor import compiled
from tests.system.hostile import fuzz_decoder

INPUTS = 20_000  # some seconds; the program itself tries as many as it is told
# Without this check, a string may end behind the input.
CHECK = "(uint64_t)(r->end - r->next) < head->number"


@pytest.fixture
def run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Return the result of a run of the fuzzer."""
    try:
        module, environment = fuzz_decoder.compile_decoder(tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler with sanitizers")
    command = [sys.executable, "-m", fuzz_decoder.__name__, f"--inputs={INPUTS}"]
    return subprocess.run(
        [*command, f"--module={module}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(compiled is None, reason="the decoder wasn't compiled")
def test_no_input_harms_the_decoder(
    run: subprocess.CompletedProcess[str],
) -> None:
    assert run.returncode == 0, run.stderr
    assert "no error" in run.stdout


@pytest.fixture
def broken_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a check from the decoder's source."""
    source = tmp_path / "_native.c"
    text = fuzz_decoder.SOURCE.read_text()
    assert CHECK in text
    source.write_text(text.replace(CHECK, "0"))
    monkeypatch.setattr(fuzz_decoder, "SOURCE", source)


@pytest.mark.skipif(compiled is None, reason="the decoder wasn't compiled")
def test_a_missing_check_is_found(
    broken_source: None, run: subprocess.CompletedProcess[str]
) -> None:
    assert run.returncode != 0
    assert "AddressSanitizer" in run.stderr
