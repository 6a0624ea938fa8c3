# For clients/test.sh and test/mutants/random.sh, after le_prepare: Python with packages, in $LE_TMP/venv.

# le_python_wheels FILE: downloads what a requirements file names, as wheels that are kept in build/cache while the file
# stays the same. Fails, and says why, where they cannot be had.
le_python_wheels()
{
	local file=$1 log=$LE_TMP/pip.log kept
	kept=$LE_ROOT/build/cache/wheels/$( (cat "$file"; "${PYTHON:-/usr/bin/python3}" --version) | sha256sum | cut -c1-16)
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
}

le_python_install()
{
	local log=$LE_TMP/pip.log
	le_wait "$LE_TMP/venv/bin/pip" install -q --no-index --find-links "$LE_TMP/wheels" "${@/#/-r}" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; le_die "pip cannot install"; }
	chmod -R a+rX "$LE_TMP/venv" "$LE_TMP/wheels"
}

# le_python_packages FILE...: installs what these requirements files name. Fails where it cannot be had.
le_python_packages()
{
	local python=${PYTHON:-/usr/bin/python3} log=$LE_TMP/pip.log file
	le_extra_packages python3-venv
	"$python" -m venv "$LE_TMP/venv" >"$log" 2>&1 || { tail "$log" >&2; le_die "no python3-venv"; }
	mkdir "$LE_TMP/wheels"
	for file in "$@"; do
		le_python_wheels "$file" || return 1
	done
	le_python_install "$@"
	LE_ENV+=(PATH="$LE_TMP/venv/bin:$LE_BIN:$PATH:/usr/sbin" PIP_NO_INDEX=1 PIP_FIND_LINKS="$LE_TMP/wheels"
		PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1)
}

# le_python_optional FILE: the same, where it can be had. Not on every platform.
le_python_optional()
{
	! le_python_wheels "$1" || le_python_install "$1"
}
