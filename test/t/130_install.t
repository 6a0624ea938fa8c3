# make uninstall and make uninstall-client remove exactly the files that make install and make install-client have
# installed. Without scdoc there are no man pages; make reports this, but does not fail.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use File::Find;
use File::Path qw(make_path);
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();

sub make
{
	my (@args) = @_;
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL)};
	my $out = `make -s @args 2>&1`;

	is($?, 0, "make $args[0]") or diag($out);
	return $out;
}

sub files
{
	my ($root) = @_;
	my @files;

	find({ no_chdir => 1, wanted => sub { push @files, s/^\Q$root\E//r if -l || !-d } }, $root);
	return join(' ', sort @files);
}

my $installed = '/usr/bin/lockctl /usr/include/lock_election.h /usr/lib/m/liblockelection.a /usr/lib/m/liblockelection.so'
  . ' /usr/lib/m/liblockelection.so.N /usr/lib/m/liblockelection.so.V /usr/lib/m/pkgconfig/liblockelection.pc'
  . ' /usr/share/bash-completion/completions/lockctl';
my $pages = ' /usr/share/man/man1/lockctl.1 /usr/share/man/man3/liblockelection.3';
my %others = map { $_ => 1 } qw(/usr/bin/other /usr/lib/m/liblockelection-other.a /usr/share/man/man3/other.3);

# "cat" replaces scdoc, and is always installed.
foreach my $scdoc ('', 'cat')
{
	my $root = "$dir/client$scdoc";
	my @args = ("DESTDIR=$root", 'PREFIX=/usr', 'LIBDIR=/usr/lib/m', "SCDOC=$scdoc");
	my $said = make('install-client', @args);

	is($said, $scdoc eq '' ? "no man pages: scdoc is not installed\n" : '', 'output of install-client');
	is(files($root) =~ s/so\.\d+ /so.N /r =~ s/so\.[\d.]+ /so.V /r, $installed . ($scdoc eq '' ? '' : $pages), 'files of install-client');
	make_path("$root/usr/share/man/man3");
	append_to_file("$root$_", '') foreach keys %others;
	make('uninstall-client', @args);
	is(files($root), join(' ', sort keys %others), 'uninstall-client removes exactly the installed files');
}

# The extension, as it was built.
my @args = ("DESTDIR=$dir/server", '-o', 'all', '-o', 'lock_election.so');
make('install', @args);
like(files("$dir/server"), qr{^(?=.*/lock_election\.so\b)(?=.*/lock_election\.control\b).*/lock_election--\d[\d.]*\.sql\b}, 'install installs the extension');
like(files("$dir/server"), qr{(?=.*/extension/lock_election/lock_election\.sql\b)(?=.*/extension/lock_election/to_extension\.sql\b).*/extension/lock_election/from_extension\.sql\b},
	'install installs the portable edition, and the scripts that move to and from it');
make('uninstall', @args);
is(files("$dir/server"), '', 'uninstall removes all installed files');
done_testing();
