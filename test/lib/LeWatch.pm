# Runs prometheus and prometheus-postgres-exporter of Debian, which monitor a server.
package LeWatch;
use strict;
use warnings;
use Exporter 'import';
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP ();
use LeTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(can_watch metrics_of start_exporter scrape start_prometheus ask_prometheus stop_watching);

my @started;

sub can_watch
{
	foreach my $program (qw(prometheus promtool prometheus-postgres-exporter))
	{
		return 0 unless grep { -x "$_/$program" } split /:/, $ENV{PATH};
	}
	return 1;
}

# Returns the metrics listed in docs/monitoring/metrics: name => type.
sub metrics_of
{
	my ($list) = @_;
	my %metrics;

	while ($list =~ /^(gauge|counter|histogram) (\w+):/mg)
	{
		$metrics{ "lock_election_$2" . ($1 eq 'histogram' ? '_seconds' : '') } = $1;
	}
	return %metrics;
}

sub get
{
	my ($url) = @_;

	return HTTP::Tiny->new(timeout => 10)->get($url);
}

# Starts a program that replies at this address. Dies with its log if it does not.
sub start
{
	my ($url, @command) = @_;
	my ($in, $log) = ('', '');
	my $run = IPC::Run::start([@command], '<', \$in, '>&', \$log);

	push @started, $run;
	wait_until(sub { $run->pump_nb; return get($url)->{success} || !$run->pumpable; });
	die "$command[0]: $log" unless get($url)->{success};
	return;
}

# Starts an exporter. Returns host:port. Without options, the exporter's own metrics are disabled.
sub start_exporter
{
	my ($node, $queries, $dbname, @options) = @_;
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $target = 'host=' . $node->host . ' port=' . $node->port . " dbname=$dbname sslmode=disable user=" . getpwuid($<);

	local $ENV{DATA_SOURCE_NAME} = $target;
	start("http://$address/metrics", 'prometheus-postgres-exporter', "--web.listen-address=$address",
		"--extend.query-path=$queries", @options ? @options : qw(--disable-default-metrics --disable-settings-metrics));
	return $address;
}

# Returns the samples: name => [ { labels => .., value => .. }, .. ]
sub scrape
{
	my ($address) = @_;
	my %samples;

	foreach my $line (split /\n/, get("http://$address/metrics")->{content})
	{
		next unless $line =~ /^(\w+)(?:\{(.*)\})? (\S+)$/;
		my ($name, $labels, $value) = ($1, $2 // '', $3);
		push @{ $samples{$name} }, { labels => { $labels =~ /(\w+)="([^"]*)"/g }, value => $value };
	}
	return %samples;
}

# Starts a Prometheus that scrapes the exporters and evaluates the rules each second. Returns host:port.
sub start_prometheus
{
	my ($rules, @exporters) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $targets = join ', ', map { "'$_'" } @exporters;

	append_to_file("$dir/prometheus.yml", <<"YAML");
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['$rules']
scrape_configs:
  - job_name: lock_election
    static_configs: [{targets: [$targets]}]
YAML
	start("http://$address/-/ready", 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data",
		"--web.listen-address=$address", '--log.level=warn');
	return $address;
}

# Returns the current samples of an expression. Dies if Prometheus rejects it.
sub ask_prometheus
{
	my ($address, $expression) = @_;
	my $query = HTTP::Tiny->new->www_form_urlencode({ query => $expression });
	my $response = get("http://$address/api/v1/query?$query");
	my $answer = JSON::PP::decode_json($response->{content});

	die "$expression: $answer->{error}\n" unless $answer->{status} eq 'success';
	return @{ $answer->{data}{result} };
}

sub stop_watching
{
	foreach my $run (splice @started)
	{
		$run->kill_kill(grace => 5);
	}
	return;
}

END
{
	local $?;
	stop_watching();
}

1;
