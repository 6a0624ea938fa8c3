#!/bin/bash
# Builds the packages of the clients into build/clients, as they are published.  Needs the network for what builds them.
#   CLIENTS="python"    which
set -eu
cd "$(dirname "$0")/.."
CLIENTS=${CLIENTS:-python}
out=$PWD/build/clients
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A source archive and a wheel, the same bytes each time.
build_python()
{
	local python=${PYTHON:-python3} tools
	tools=$(grep -E '^(build|hatchling)==' clients/python/tests/requirements.txt)
	"$python" -m venv "$work/venv"
	"$work/venv/bin/pip" install -q --disable-pip-version-check $tools
	cp -r clients/python "$work/python"
	(cd "$work" && venv/bin/python -m build --no-isolation --outdir "$out" python >"$work/log") || {
		cat "$work/log" >&2
		exit 1
	}
}

mkdir -p "$out"
for client in $CLIENTS; do
	"build_$client"
done
ls "$out"
