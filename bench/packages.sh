# What the peers and the plots need, as Debian packages: installed on request, missing systems are skipped. Their services
# are kept from starting by the policy in test/common.sh.

bench_peer_packages()
{
	local java=()
	command -v javac >/dev/null || java=(default-jdk-headless)
	echo redis-server libhiredis-dev gnuplot-nox ${FLUSH_US:+strace} \
		etcd-server golang-go golang-etcd-server-dev \
		zookeeper libzookeeper-java libcurator-recipes-java "${java[@]}"
}

bench_packages()
{
	[ "${PEERS:-}" = install ] || return 0
	le_extra_packages $(bench_peer_packages)
}
