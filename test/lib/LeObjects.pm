# Compiles a mutated file to decide whether the mutant counts: it must compile, to an object that differs from those of
# the sources and of earlier mutants.  Objects are compared without assertions and debugging information, so that a
# mutant changes the production code; line numbers, which errors quote, do not change.
package LeObjects;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';
use LeMutate qw(mutated);

our @EXPORT = qw(new_objects verdict know_object compile_text);

# Warnings that are errors here, because newer compilers treat them as errors.
my @errors = map { "-Werror=$_" } qw(int-conversion incompatible-pointer-types implicit-function-declaration return-type);

# Returns the command that compiles a file, without the names of the file and the object.
sub command_of
{
	my ($file) = @_;
	my $pg_config = $ENV{LE_BUILD_PG_CONFIG} // $ENV{PG_CONFIG} // 'pg_config';
	my $object = $file =~ s/\.c$/.o/r;
	my ($make) = $file =~ m{^src/server/} ? "PG_CONFIG=$pg_config $object"
	  : $file =~ m{^src/client/(\w+)} ? "build/client/lib/$1.o" : $file =~ m{^src/lockctl/(\w+)} ? "build/lockctl/$1.o" : undef;

	return qw(gcc -std=c11 -O2 -Isrc) unless $make;
	my ($line) = grep { / -c -o \S+ \Q$file\E$/ } split(/\n/, `make -n -W $file $make`);
	$line // die "no command for $file\n";
	$line =~ s/ -c -o .*//;
	$line =~ s/ (?:-g|-MMD|-MP|-W\S*)(?= )//g for 1 .. 2;
	return split_words($line);
}

# Splits a command into words like a shell, respecting quotes.
sub split_words
{
	my ($line) = @_;
	my @words;

	while ($line =~ /\G\s*((?:'[^']*'|[^\s'])+)/g) { push @words, $1 =~ s/'//gr; }
	return @words;
}

# Compiles a text in place of a file. Returns true if it compiles.
sub compile_text
{
	my ($file, $text, $object, @command) = @_;
	my $dir = $file =~ s{/[^/]*$}{}r;
	my $pid = open(my $to, '|-') // die "fork: $!";

	if ($pid == 0)
	{
		open(STDERR, '>', $object ? "$object.errors" : '/dev/null') or die $!;
		exec(@command, '-iquote', $dir, ($object ? ('-c', '-o', $object) : '-fsyntax-only'), '-x', 'c', '-') or die "exec: $!";
	}
	local $SIG{PIPE} = 'IGNORE';
	print $to qq(# 1 "$file"\n$text);
	return close($to);
}

sub new_objects
{
	my ($dir) = @_;

	return { dir => $dir, command => {}, seen => {} };
}

sub object_digest
{
	my ($objects, $file, $text) = @_;
	my $object = "$objects->{dir}/object.o";
	my $folder = $file =~ s{^(src/\w+)/.*}{$1}r;
	my $command = $objects->{command}{$folder} //= [ command_of($file), qw(-w -DNDEBUG -g0), @errors ];

	return undef unless compile_text($file, $text, $object, @$command);
	open(my $in, '<:raw', $object) or die "$object: $!";
	local $/;
	return sha256_hex(<$in>);
}

# Returns the known digests of a file's objects: digest => verdict of a mutant with that object.
sub seen_of
{
	my ($objects, $file, $text) = @_;

	return $objects->{seen}{$file} //= { (object_digest($objects, $file, $text) // die "$file does not compile\n") => 'equivalent' };
}

# Marks the object of a mutant that counts, or was drawn in an earlier run, as known.
sub know_object
{
	my ($objects, $file, $text, $digest) = @_;

	seen_of($objects, $file, $text)->{$digest} //= 'duplicate' if defined $digest;
	return;
}

# Returns the verdict (counts, not compiled, equivalent to the object of the sources, or duplicate of another mutant),
# and the digest of the object.
sub verdict
{
	my ($objects, $site, $text) = @_;
	my $file = $site->{file};
	my $seen = seen_of($objects, $file, $text);

	if (defined $site->{probe})
	{
		my ($folder) = $file =~ m{^(src/\w+)/};

		compile_text($file, mutated($site, $text, 'probe'), undef, @{ $objects->{command}{$folder} }) or return 'not compiled';
	}
	my $digest = object_digest($objects, $file, mutated($site, $text)) // return 'not compiled';
	return ($seen->{$digest} // 'counts', $digest);
}

1;
