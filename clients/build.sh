#!/bin/bash
# Builds the packages of the clients into build/clients, as they are published.  Needs the network for what builds them.
#   CLIENTS="python go java node ruby rust"    which
set -eu
cd "$(dirname "$0")/.."
chosen=${CLIENTS:-}
CLIENTS=${CLIENTS:-python go java node ruby rust}
out=$PWD/build/clients
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A client is skipped, or, where it was asked for, an error.
without()
{
	if [ -n "$chosen" ]; then
		echo "CLIENTS: $1 needs $2" >&2
		exit 1
	fi
	echo "$1 is skipped: there is no $2" >&2
}

# A source archive and a wheel, the same bytes each time.
build_python()
{
	local python=${PYTHON:-python3} tools
	tools=$(grep -E '^(build|hatchling)==' clients/python/tests/requirements.txt)
	"$python" -m venv "$work/venv"
	"$work/venv/bin/pip" install -q --disable-pip-version-check $tools
	mkdir "$work/checkout"
	tar -cf - clients/python sql/portable/lock_election.sql | tar -C "$work/checkout" -xf -
	(cd "$work" && venv/bin/python -m build --no-isolation --outdir "$out" checkout/clients/python >"$work/log") || {
		cat "$work/log" >&2
		exit 1
	}
}

# The modules as a proxy of Go has them, for GOPROXY=file://.../build/clients/goproxy.
build_go()
{
	local dir
	if ! command -v go >/dev/null; then
		without go go
		return
	fi
	cp -r clients/go "$work/go"
	for dir in "$work/go"{,/leaderelection,/lockotel,/schedulers}; do
		cp LICENSE "$dir"
	done
	go run -C clients/go/modzip . "$out/goproxy" v1.0.0 "$work/go"{,/leaderelection,/lockotel,/schedulers}
}

# A repository of Maven's, with jars of classes, sources and Javadoc; and the jars beside it.
build_java()
{
	if ! command -v mvn >/dev/null; then
		without java mvn
		return
	fi
	mkdir "$work/sources"
	tar --exclude=target -cf - clients/java sql/portable/lock_election.sql | tar -C "$work/sources" -xf -
	rm -rf "$out/maven"
	mvn -B -q -T1 -Dstyle.color=never ${LE_MAVEN:+-o -Dmaven.repo.local="$LE_MAVEN"} -f "$work/sources/clients/java" -DskipTests \
		-pl .,core,shedlock,spring,junit,observability -DaltDeploymentRepository="build::file://$out/maven" \
		package javadoc:jar deploy:deploy >"$work/log" || { cat "$work/log" >&2; exit 1; }
	find "$out/maven" -name 'lock-election*.jar' ! -name '*-tests.jar' -exec cp {} "$out" \;
}

# An archive for npm, with ES modules, CommonJS and types; the same bytes each time.
build_node()
{
	if ! command -v npm >/dev/null; then
		without node npm
		return
	fi
	mkdir "$work/repository"
	tar --exclude=node_modules --exclude=dist -cf - LICENSE clients/node sql/portable/lock_election.sql |
		tar -C "$work/repository" -xf -
	cd "$work/repository/clients/node"
	npm install --loglevel=error --no-package-lock --no-fund --no-audit --ignore-scripts >"$work/log" &&
		npm run --silent build >>"$work/log" &&
		npm pack --silent --ignore-scripts --pack-destination "$out" >>"$work/log" || {
		cat "$work/log" >&2
		exit 1
	}
	cd - >/dev/null
}

# A gem, the same bytes each time.
build_ruby()
{
	if ! command -v gem >/dev/null; then
		without ruby gem
		return
	fi
	mkdir "$work/gem"
	tar --dereference -C clients/ruby -cf - . | tar -C "$work/gem" -xf -
	(cd "$work/gem" && SOURCE_DATE_EPOCH=0 gem build --quiet --output "$out/lock_election.gem" lock_election.gemspec) >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
	mv "$out/lock_election.gem" "$out/lock_election-$(sed -n 's/.*VERSION = "\(.*\)"/\1/p' clients/ruby/lib/lock_election/version.rb).gem"
}

# An archive as a registry of crates has it.
build_rust()
{
	local cargo=${CARGO:-cargo}
	if ! "$cargo" --version >/dev/null 2>&1; then
		without rust cargo
		return
	fi
	mkdir "$work/rust"
	tar --dereference --exclude=target -C clients/rust -cf - . | tar -C "$work/rust" -xf -
	cp LICENSE "$work/rust"
	"$cargo" package --quiet --allow-dirty --no-verify --locked --manifest-path "$work/rust/Cargo.toml" -p lock-election \
		--target-dir "$work/target"
	cp "$work"/target/package/*.crate "$out"
}

mkdir -p "$out"
for client in $CLIENTS; do
	"build_$client"
done
ls "$out"
