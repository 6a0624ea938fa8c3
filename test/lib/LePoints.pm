# Stops processes at fault points, see shared/fault.c, and continues them. No function here sends a request to a
# manager, so none waits for a stopped one.
#
#   points_by(\$session)     the session for all following calls, of LeTest.pm or LeWire.pm; read at each call
#   fault("clear()")         calls a control function
#   stop_at($point, $pid)    stops any process, or this one, at the point
#   stopped($point)          waits until a process has stopped there
#   go_on($point)            continues the stopped processes
#   asking($session)         waits until that session has posted a request and waits for the reply

package LePoints;

use strict;
use warnings;

use Exporter 'import';
use LeTest;

our @EXPORT = qw(points_by fault stop_at stopped go_on asking);

my $by;

sub points_by { ($by) = @_; return; }

sub answer_to
{
	my ($sql) = @_;
	my $answer = $$by->query($sql);

	return $$by->isa('LeWire') ? $$by->wait('Z') : $answer;
}

sub fault { return answer_to("SELECT fault_$_[0]"); }

sub stop_at { my ($point, $pid) = @_; return fault("set('$point', 'wait', pid => " . ($pid // 0) . ')'); }

sub stopped
{
	my ($point) = @_;
	return wait_until(sub { fault("waiting('$point')") ne '0' }) || die "no process stops at $point";
}

sub go_on { return fault("release('$_[0]')"); }

sub asking
{
	my ($session) = @_;
	my $sql = q{SELECT wait_event_type = 'Extension' AND state = 'active' FROM pg_stat_activity WHERE pid = } . $session->pid;
	return wait_until(sub { answer_to($sql) eq 't' }) || die 'the session does not wait for a reply';
}

1;
