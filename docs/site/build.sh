#!/bin/bash
# Builds the documents as a site, into build/site; with the word "test" looks at it in a browser, too.  Installs what is
# missing: Debian's python3-venv and, for the test, chromium; and Python packages into build/site-venv.
. "$(dirname "$0")/../../test/common.sh"
cd "$LE_ROOT"
LE_TMP=$(mktemp -d)
venv=build/site-venv

le_extra_packages python3-venv git
stamp=$(cat docs/site/requirements.txt | sha256sum)
if [ "$(cat $venv/stamp 2>/dev/null)" != "$stamp" ]; then
	le_say "downloading Python packages"
	rm -rf $venv
	/usr/bin/python3 -m venv $venv
	$venv/bin/pip install -q --disable-pip-version-check -r docs/site/requirements.txt
	echo "$stamp" >$venv/stamp
fi

# The pages lie beside each other as they do here, so that their links are right there and in a repository's view.
pages=$LE_TMP/pages
mkdir -p "$pages"
linked=$(test/lib/links --targets docs/how-to/frameworks.md)
git ls-files -z --cached --others --exclude-standard -- '*.md' LICENSE docs examples bench/results 'clients/*/examples/*' \
	clients/conformance test/torture $linked |
	grep -zv '^docs/site/' | xargs -0 cp --parents -t "$pages"
# A folder that is linked to shows its files in a repository's view; here a page does.
for folder in clients/*/examples clients/conformance/{porcupine,scenarios} clients/go/{leaderelection,schedulers} \
	examples/kubernetes/* docs/monitoring; do
	[ -d "$folder" ] || continue
	[ ! -e "$folder/README.md" ] || continue
	{
		echo "# $folder"
		echo
		(cd "$pages/$folder" && find . -type f | sort | sed 's|^\./\(.*\)|- [\1](\1)|')
	} >"$LE_TMP/listing"
	mv "$LE_TMP/listing" "$pages/$folder/README.md"
done
cp docs/site/site.css "$pages"
cp docs/site/tabs.py "$LE_TMP"
sed "s|^docs_dir:.*|docs_dir: $pages|; s|^site_dir:.*|site_dir: $LE_ROOT/build/site|" docs/site/mkdocs.yml >"$LE_TMP/mkdocs.yml"
rm -rf build/site
NO_MKDOCS_2_WARNING=1 $venv/bin/mkdocs build --strict --quiet --config-file "$LE_TMP/mkdocs.yml"
le_say "build/site/index.html"

if [ "${1:-}" = test ]; then
	le_extra_packages chromium fonts-dejavu-core
	$venv/bin/python -m pytest -p no:cacheprovider -q docs/site/test_site.py
fi
