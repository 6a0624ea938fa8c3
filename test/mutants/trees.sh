# For run.sh and random.sh: creates a tree for each worker, $LE_TMP/w1 and so on, with the sources, a build from which
# the build of each mutant starts, and one or two PostgreSQL installations that the account can write to.  The tests
# also build in the first tree.

# mutants_trees N      call after le_prepare, and after le_faults_tree if a test needs the build with fault points
mutants_trees()
{
	local i bin
	tar -C "$LE_ROOT" --exclude=build/cache -cf - build src | tar -C "$LE_TMP/src" -xf -
	[ "$(id -u)" != 0 ] || chown -R -P nobody:nogroup "$LE_TMP/src"
	for ((i = 1; i <= $1; i++)); do
		mkdir "$LE_TMP/w$i" "$LE_TMP/w$i/work"
		cp -a "$LE_TMP/usr" "$LE_TMP/src" ${LE_FAULTS_TREE:+"$LE_TMP/faults"} "$LE_TMP/w$i"
		[ ! -d "$LE_TMP/venv" ] || ln -s ../venv "$LE_TMP/w$i"
		[ "$(id -u)" = 0 ] || continue
		chown -R -P nobody:nogroup "$LE_TMP/w$i/src" "$LE_TMP/w$i/work"
		for bin in "$LE_TMP/w$i${LE_BIN#"$LE_TMP"}" ${LE_FAULTS_TREE:+"$LE_TMP/w$i${LE_FAULTS_TREE#"$LE_TMP"}/bin"}; do
			chown -R -P nobody:nogroup "$("$bin/pg_config" --pkglibdir)" "$("$bin/pg_config" --sharedir)/extension"
		done
	done
}
