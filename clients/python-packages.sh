# For clients/test.sh and test/mutants/random.sh, after le_prepare: Python with packages, in $LE_TMP/venv.

# le_python_packages FILE...: all that these requirements files name, as wheels that are kept in build/cache while a file
# stays the same.  Fails, and says why, where they cannot be had.
le_python_packages()
{
	local python=${PYTHON:-/usr/bin/python3} log=$LE_TMP/pip.log file kept
	le_extra_packages python3-venv
	"$python" -m venv "$LE_TMP/venv" >"$log" 2>&1 || { tail "$log" >&2; le_die "no python3-venv"; }
	mkdir "$LE_TMP/wheels"
	for file in "$@"; do
		kept=$LE_ROOT/build/cache/wheels/$( (cat "$file"; "$python" --version) | sha256sum | cut -c1-16)
		if [ ! -d "$kept" ]; then
			le_say "downloading Python packages: $file"
			mkdir -p "${kept%/*}"
			le_wait "$LE_TMP/venv/bin/pip" wheel -q -w "$kept.new" -r "$file" >"$log" 2>&1 || {
				rm -rf "$kept.new"
				tail -n 20 "$log" >&2
				le_say "pip cannot get the packages of $file"
				return 1
			}
			mv "$kept.new" "$kept"
		fi
		cp -r "$kept/." "$LE_TMP/wheels"
	done
	le_wait "$LE_TMP/venv/bin/pip" install -q --no-index --find-links "$LE_TMP/wheels" "${@/#/-r}" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; le_die "pip cannot install"; }
	chmod -R a+rX "$LE_TMP/venv" "$LE_TMP/wheels"
	LE_ENV+=(PATH="$LE_TMP/venv/bin:$LE_BIN:$PATH:/usr/sbin" PIP_NO_INDEX=1 PIP_FIND_LINKS="$LE_TMP/wheels"
		PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1)
}
