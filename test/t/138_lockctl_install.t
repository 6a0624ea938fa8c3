# lockctl install: the portable edition is installed by a role with only CREATE on the database, repeatedly, and twice
# at once; each reason for which it fails; and liblockelection's le_install(), which it calls.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, init => [ allows_streaming => 1 ], conf => "shared_preload_libraries = ''\n");
ctl_node($node);
my ($rc, $out, $err);
my @installer = ({ env => { PGUSER => 'installer', PGDATABASE => 'app' } });
my $in = sub { my ($user, $db) = @_; return { env => { PGUSER => $user, PGDATABASE => $db } }; };

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN; CREATE ROLE guest LOGIN; CREATE ROLE plain LOGIN');
one('CREATE DATABASE app'); one('CREATE DATABASE granted'); one('CREATE DATABASE other');
one("GRANT CREATE ON DATABASE $_ TO installer") foreach qw(app granted);
one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', $_) foreach qw(app granted other); # as from PostgreSQL 15 on

subtest 'a role with CREATE on the database alone' => sub {
	is(ctl(@installer, 'install'), 69, 'install exits with 69 without CREATE on schema public');
	like((ctl(@installer, 'install'))[2], qr/may not create functions in schema "public".*lockctl install --schema locks/, 'the error advises --schema');
	# The commands of the page. The second one must be run by the owner of the database.
	my ($first, $second) = slurp_file('docs/how-to/managed.md') =~ /^lockctl (install .*)\npsql -d app -c '(ALTER DATABASE .*)'$/m or die 'no commands';
	($rc, $out, $err) = ctl(@installer, split ' ', $first);
	is($rc . $out, '0', 'install --schema succeeds') or diag($err);
	like($err, qr/version 1, is installed in database "app", its functions in schema locks\n.*the owner of the database types: ALTER DATABASE app SET search_path = "\$user", public, locks\n\z/, 'install prints the next command for the owner of the database');
	one('ALTER DATABASE app OWNER TO installer');
	like((ctl(@installer, 'install'))[2], qr/for calls in SQL type: ALTER DATABASE app /,
		'install as the owner of the database prints the next command');
	one('ALTER DATABASE app OWNER TO CURRENT_USER');
	($rc, $out, $err) = ctl($in->('app', 'app'), qw(lock --try x -- echo ran));
	is("$rc$out", "0ran\n", 'another role can lock');
	one($second);
	my $s = session($node, dbname => 'app', user => 'app');
	like($s->query(q{SELECT acquire_lock('x')}), qr/^\d+$/, 'another role can lock in SQL');
	$s->quit;
	one($node, q{SELECT force_release_lock('x')}, 'app');

	# A repeated installation, by any role: programs call it when they start.
	foreach my $role (qw(installer app))
	{
		my $xid = one('SELECT pg_current_xact_id()');

		($rc, $out, $err) = ctl($in->($role, 'app'), qw(install --schema elsewhere));
		is($rc, 0, "a second install, as $role");
		like($err, qr/version 1, was there already, in database "app", its functions in schema locks\n/, "a second install, as $role, prints that it was there already");
		is(one("SELECT pg_current_xact_id()::text::bigint - $xid"), 1,
			"a second install, as $role, uses no transaction id");
	}
	is(one($node, q{SELECT count(*) FROM pg_namespace WHERE nspname = 'elsewhere'}, 'app'), 0,
		'a second install creates no schema');
};

subtest 'the command of README, which needs only psql' => sub {
	my ($command) = slurp_file('README.md') =~ /^(psql -d app .*\\\n.*)$/m or die 'no command';

	one('CREATE DATABASE page OWNER installer');
	$command =~ s/\bapp\b/page/g;
	local @ENV{qw(PGHOST PGPORT PGUSER)} = ($node->host, $node->port, 'installer');
	$node->command_ok([ 'sh', '-c', $command ], 'the owner of the database runs it');
	my $s = session($node, dbname => 'page', user => 'app');
	like($s->query(q{SELECT acquire_lock('x')}), qr/^\d+$/, 'another role can lock in SQL after the command of README');
	$s->quit;
};

subtest 'for one role, in a schema that has to be quoted, two at once' => sub {
	my @both = map { start_ctl($in->('installer', 'granted'), 'install', '--schema', 'My "locks"', '--grant', 'app') } 1 .. 2;

	is($_->wait, 0, 'one of two simultaneous installations') foreach @both;
	like($both[0]->err . $both[1]->err, qr/schema "My ""locks"""/, 'the name of the schema is printed with quotes');
	is(join('', ctl($in->('app', 'granted'), qw(lock --try x -- echo ran))), "0ran\n", 'the granted role can lock');
	is(ctl($in->('guest', 'granted'), qw(lock --try x -- echo ran)), 69, 'another role cannot lock');
	is(one($node, q{SELECT nspname || ' ' || nspowner::regrole FROM pg_namespace WHERE nspname ~ 'My'}, 'granted'), 'My "locks" installer', 'the installer owns the schema');
};

subtest 'installations that fail' => sub {
	my $refused = sub { my ($args, $message, $what) = @_; ($rc, $out, $err) = ctl(@$args); is("$rc$out", '69', $what); like($err, $message, "$what: the message"); };

	$refused->([ $in->('plain', 'other'), qw(install --schema locks) ], qr/role "plain" may not create schemas in database "other".*GRANT CREATE ON DATABASE other TO plain/, 'a role without CREATE');
	$refused->([ $in->('installer', 'app'), qw(-h), $node->host, '-p', 1, qw(install) ], qr/./, 'no server');
	one($node, 'COMMENT ON SCHEMA _lock_election IS NULL', 'app');
	$refused->([ $in->('app', 'app'), qw(install --schema locks) ], qr/belongs to role "installer".*Run this file as that role/, 'another role has installed');
	one($node, 'UPDATE _lock_election.edition SET version = 99', 'app');
	$refused->([ @installer, 'install' ], qr/version 99 of the portable edition is installed, and this is version 1.*newer release/, 'a newer version');
	one('ALTER ROLE guest SET default_transaction_read_only = on; GRANT CREATE ON DATABASE other TO guest');
	$refused->([ $in->('guest', 'other'), qw(install --schema locks) ], qr/transactions are read-only here.*default_transaction_read_only=off/, 'a read-only session');
	one('ALTER ROLE guest RESET ALL');
	is(one($node, q{SELECT count(*) FROM pg_namespace WHERE nspname ~ 'lock'}, 'other'), 0, 'no schema is left after a failed installation');
	is(ctl($in->('guest', 'other'), qw(install --schema pg_locks)), 64,
		'a schema name that is reserved for the server');
	is(ctl($in->('guest', 'other'), qw(install --schema locks --grant missing)), 69, 'a role that does not exist');
	is(one($node, q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^_?lock'}, 'other'), 0, 'no schema is left after an invalid argument');
	is(ctl({ env => { %{ $in->('guest', 'other')->{env} }, PGOPTIONS => '-c default_transaction_isolation=serializable' } }, qw(install --schema locks)), 0, 'install succeeds if the default isolation level is serializable');

	foreach my $case ([ [qw(install x)], qr/too many arguments: "x"/ ], [ [qw(install --schema)], qr/needs a value/ ], [ [ 'install', '--schema', '' ], qr/is empty/ ],
		[ [qw(install --print --schema x)], qr/--print cannot be used/ ], [ [qw(install --force)], qr/unknown option "--force"/ ])
	{
		($rc, $out, $err) = ctl(@{ $case->[0] });
		is($rc, 64, "@{ $case->[0] }");
		like($err, $case->[1], "the message: @{ $case->[0] }");
	}
};

subtest 'install --print' => sub {
	my $copy = PostgreSQL::Test::Utils::tempdir() . '/copy.sql';

	($rc, $out) = ctl(qw(install --print));
	is($rc, 0, 'install --print exits with 0');
	ok($out eq slurp_file('sql/portable/lock_election.sql'), 'install --print prints the file of the sources');
	append_to_file($copy, $out);
	one('CREATE DATABASE piped OWNER installer');
	one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'piped');
	local $ENV{PGOPTIONS} = '-c _lock_election.schema=locks -c _lock_election.grant=app';
	$node->command_ok([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-U', 'installer', '-d', 'piped', '-f', $copy ], 'psql runs the printed file');
	delete $ENV{PGOPTIONS};
	is(join('', ctl($in->('app', 'piped'), qw(lock --try x -- echo ran))), "0ran\n",
		'the role of _lock_election.grant can lock');
	is(ctl($in->('guest', 'piped'), qw(lock --try x -- echo ran)), 69, 'another role cannot lock');
};

subtest 'a standby' => sub {
	my $standby = PostgreSQL::Test::Cluster->new('standby');

	$node->backup('for_standby');
	$standby->init_from_backup($node, 'for_standby', has_streaming => 1);
	$standby->start;
	($rc, $out, $err) = ctl({ env => { PGUSER => 'installer', PGDATABASE => 'app', PGHOST => $standby->host, PGPORT => $standby->port } }, 'install');
	is($rc, 69, 'install on a standby exits with 69');
	like($err, qr/hot standby|standby/, 'the error of install names the standby');
	IPC::Run::run([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $standby->connstr('app'), '-f', 'sql/portable/lock_election.sql' ], '>', '/dev/null', '2>', \$err);
	like($err, qr/this server is a standby, where nothing can be installed/, 'the error of the file names the standby');
	$standby->stop;
};

done_testing();
