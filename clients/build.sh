#!/bin/bash
# Builds the packages of the clients into build/clients, as they are published.  Needs the network for what builds them.
#   CLIENTS="python go"    which
set -eu
cd "$(dirname "$0")/.."
CLIENTS=${CLIENTS:-python go}
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

# The modules as a proxy of Go has them, for GOPROXY=file://.../build/clients/goproxy.
build_go()
{
	local dir
	if ! command -v go >/dev/null; then
		echo "Go is skipped: there is no go" >&2
		return
	fi
	cp -r clients/go "$work/go"
	for dir in "$work/go" "$work/go/leaderelection"; do
		cp LICENSE "$dir"
	done
	go run -C clients/go/modzip . "$out/goproxy" v1.0.0 "$work/go" "$work/go/leaderelection"
}

mkdir -p "$out"
for client in $CLIENTS; do
	"build_$client"
done
ls "$out"
