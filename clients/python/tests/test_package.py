"""The package: what is built installs into a clean environment and works there; types, style and size."""

import os
import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

HERE = pathlib.Path(__file__).parents[1]
USE = """
import lock_election, sys
assert lock_election.__file__.startswith(sys.prefix), lock_election.__file__
with lock_election.connect() as session:
    with session.lock("package", wait=5) as hold:
        assert hold.valid
print(lock_election.__version__)
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, HERE)
    return out


def test_what_is_in_the_archives(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    modules = {f"lock_election/{path.name}" for path in (HERE / "src/lock_election").iterdir() if path.is_file()}
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in inside if name.startswith("lock_election/")} == modules
    assert "lock_election/py.typed" in inside
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {"src/lock_election/aio.py", "src/lock_election_pytest.py"}
    assert {"README.md", "LICENSE", "pyproject.toml", *sources} <= names


def test_the_wheel_in_a_clean_environment(built, tmp_path):
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin/python"
    (wheel,) = built.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", wheel, "psycopg[binary]")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    assert run(python, "-c", USE, env=environment, cwd=tmp_path) == "1.0.0\n"
    requires = run(python, "-m", "pip", "show", "lock-election").splitlines()
    assert "Requires: psycopg" in requires
    assert "serve" in run(tmp_path / "bin/lock-election", "--help")
    loaded = "from importlib import metadata as m; print([e.load().__name__ for e in m.entry_points(group='pytest11')])"
    assert "No module named 'pytest'" in subprocess.run([python, "-c", loaded], capture_output=True, text=True).stderr


def test_types():
    pytest.importorskip("mypy")
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "src", cwd=HERE)


def test_style():
    pytest.importorskip("ruff")
    run(sys.executable, "-m", "ruff", "check", "--no-cache", ".", cwd=HERE)
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".", cwd=HERE)


def test_the_licence_is_that_of_the_repository():
    assert (HERE / "LICENSE").read_text() == (HERE.parents[1] / "LICENSE").read_text()
