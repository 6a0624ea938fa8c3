"""The examples of README.md, and of the quick starts, run as they stand there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
QUICK_START = README.parents[2] / "docs/quick-start.md"
BLOCKS = [
    block
    for text in (README.read_text(), QUICK_START.read_text())
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]


ENDLESS = [block for block in BLOCKS if "SIGTERM" in block]  # test_processes.py ends them


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in ENDLESS])
def test_example(block, tmp_path):
    command = [sys.executable, "-W", "error", "-c", block]
    environment = {**os.environ, "PYTHONPATH": str(README.parent / "src")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_links():
    for link in re.findall(r"\]\(([\w/.]+)\)", README.read_text()):
        assert (README.parent / link).exists(), link


def test_there_are_examples():
    assert len(BLOCKS) >= 10
    assert len(ENDLESS) == 2
