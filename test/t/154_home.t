# make home writes the project's address into every place that needs it, or changes nothing. TestHome of clients/go
# builds the resulting Go modules.
# Promises: -
use strict;
use warnings;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my ($url, $mail, $domain) = ('https://git.example.org/locks/lock_election', 'locks@example.org', 'lock-election.' . 'invalid');

system_or_bail('bash', '-c', "tar --exclude=./build --exclude=./.git --exclude='*.o' --exclude='*.so' -cf - . | tar -C '$dir' -xf -");

# Runs make home in the copy. Returns the exit status and the output.
sub home
{
	my (@args) = @_;
	my $out;

	delete local @ENV{qw(MAKEFLAGS MAKELEVEL)};
	IPC::Run::run([ 'make', '-s', '-C', $dir, 'home', @args ], '>&', \$out);
	return ($? >> 8, $out);
}

sub grep_in
{
	my ($word) = @_;
	return join ' ', map { s{^\Q$dir\E/}{}r } sort split /\n/, `grep -rlF --exclude-dir=build '$word' '$dir'`;
}

my $before = grep_in($domain);
foreach my $wrong ([], ["URL=$url"], [ 'URL=example', "MAIL=$mail" ], [ "URL=http://example.org/x", "MAIL=$mail" ], [ "URL=$url", 'MAIL=nobody' ],
	[ "URL=$url", "MAIL=$mail", 'GO=lockelection' ])
{
	my ($status, $out) = home(@$wrong);
	isnt($status, 0, "refused: @$wrong");
	like($out, qr/usage: make home|^not (?:an|the) /m, "the reason: @$wrong");
}
is(grep_in($domain), $before, 'a refused call changes nothing');

# A file that must be changed is missing.
system_or_bail('mv', "$dir/SECURITY.md", "$dir/other");
my ($status, $out) = home("URL=$url", "MAIL=$mail");
isnt($status, 0, 'a file is missing');
like($out, qr/^SECURITY\.md: .* is not found once/m, 'the error names the missing file');
is(grep_in($domain), $before, 'a missing file: nothing is changed');
system_or_bail('mv', "$dir/other", "$dir/SECURITY.md");

($status, $out) = home("URL=$url.git/", "MAIL=$mail");
is($status, 0, 'make home succeeds') or diag($out);
is(grep_in($domain), '', 'no placeholder is left');
foreach my $file (split / /, $before)
{
	like($out, qr/^\Q$file\E$/m, "$file is listed");
}
like(grep_in('nowhere.invalid'), qr{test/t/122_lockctl_trouble\.t}, 'a host that must not exist is kept');
like(slurp_file("$dir/clients/go/go.mod"), qr{\Amodule git\.example\.org/locks/lock_election/clients/go\n}, "Go's module");
like(slurp_file("$dir/debian/control.in"), qr{^Maintainer: .* <\Q$mail\E>\n(?:.*\n)*Homepage: \Q$url\E\n}m, "Debian's package");
my $meta = decode_json(slurp_file("$dir/META.json"));
is($meta->{resources}{$_}{web}, $url . ($_ eq 'bugtracker' ? '/issues' : ''), "META.json: $_") foreach qw(repository bugtracker);
is(decode_json(slurp_file("$dir/clients/node/package.json"))->{homepage}, $url, 'package.json');
like(slurp_file("$dir/clients/java/pom.xml"), qr{<url>\Q$url\E</url>\n  <licenses>}, 'pom.xml');
like(slurp_file("$dir/clients/python/pyproject.toml"), qr{^\[project\.urls\]\nHomepage = "\Q$url\E"$}m, 'pyproject.toml');
like(slurp_file("$dir/$_->[0]"), qr{<\Q$_->[1]\E>}, $_->[0]) foreach [ 'SECURITY.md', $mail ], [ 'CONTRIBUTING.md', $url ];
is(`perl test/tidy '$dir'`, '', 'test/tidy passes');
is(`perl test/lib/links '$dir'`, '', 'all links work');

($status, $out) = home("URL=$url", "MAIL=$mail");
isnt($status, 0, 'a second make home fails');
like($out, qr/has a home already/, 'the error of a second make home');

done_testing();
