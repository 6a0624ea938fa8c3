# Runs one pgTAP script in a cluster of its own, and prints its TAP.
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More ();

# The log files are named after $0.
BEGIN { our $script = $ARGV[0]; $0 = $script; }

my $node = new_node('pgtap');
$node->safe_psql('postgres', 'CREATE EXTENSION pgtap');
my $builder = Test::More->builder;
my $out = $builder->output;
my ($stdout, $stderr) = ('', '');
my $rc = $node->psql('postgres', slurp_file($main::script), stdout => \$stdout, stderr => \$stderr, on_error_stop => 1);
print $out "$stdout\n";
print { $builder->failure_output } map { "# $_\n" } split /\n/, $stderr;
$builder->no_ending(1);
exit($rc == 0 && $stdout !~ /^not ok/m ? 0 : 1);
