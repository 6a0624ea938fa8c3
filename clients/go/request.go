package lockelection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The most holds that one statement asks for, gives back or looks at.
const together = 128

// What asks for a hold, by kind: to be tried, which answers a token, and to be queued: token, granted and channel.
var askSQL = [...][2]string{
	kindLock: {"SELECT token FROM %s.try_acquire_each($1, owner => $2, lease => $3, mode => $4)",
		"SELECT token, granted, channel FROM %s.enqueue_each($1, owner => $2, lease => $3, mode => $4)"},
	kindLocks: {"SELECT %s.acquire_locks($1, wait => '0', owner => $2, lease => $3, mode => $4)",
		"SELECT token, granted, channel FROM %s.enqueue_locks($1, owner => $2, lease => $3, mode => $4)"},
	kindPermit: {"SELECT %s.acquire_permit($1, wait => '0', owner => $2, lease => $3, permits => $4)",
		"SELECT token, granted, channel FROM %s.enqueue_permit($1, owner => $2, lease => $3, permits => $4)"},
	kindTerm: {"SELECT %s.campaign($1, wait => '0', owner => $2, lease => $3, candidate => $4)",
		"SELECT term, elected, channel FROM %s.enqueue_candidate($1, owner => $2, lease => $3, candidate => $4)"},
}

// fellows: holds for which this is the same, and not empty, travel in one statement.
func (h *Hold) fellows() string {
	switch {
	case h.alone || h.over() && h.holdFor > 0:
	case h.over() && (h.kind == kindLock || h.kind == kindPermit):
		return "give"
	case !h.over() && h.kind == kindLock:
		return fmt.Sprint(h.try, h.last, h.lease.ttl)
	}
	return ""
}

// take removes from a list what the next statement is for: the first, and those right behind it that can go with it.
func take(list *[]*Hold, wanted func(*Hold) bool) (holds []*Hold, names []string) {
	seen := map[string]bool{}
	*list = slices.DeleteFunc(*list, func(h *Hold) bool { return !wanted(h) })
	for i, h := range *list {
		if i == together || i > 0 && (h.fellows() == "" || h.fellows() != (*list)[0].fellows() || seen[h.names[0]]) {
			break
		}
		seen[h.names[0]] = true
		holds, names = append(holds, h), append(names, h.names...)
	}
	*list = (*list)[len(holds):]
	return holds, names
}

// send runs a statement for these holds. Where it has no answer yet, again tells of each hold whether it is to be sent
// again: all after an error that passes; each alone after another one of several, which took no effect.
func (s *Session) send(holds []*Hold, sql string, args ...string) (r rows, err error, again bool) {
	r, err = s.exec(holds[0].lease, sql, args...)
	if err == nil && len(r) != len(holds) {
		s.unanswered, err = true, fmt.Errorf("%w: %d rows for %d names", ErrUnknown, len(r), len(holds))
	}
	if again = passes(err); again && s.wire != nil {
		s.askAt = s.set.now() + 2*firstRetry
	}
	if len(holds) > 1 && err != nil && !again && !errors.Is(err, ErrLost) {
		again = true
		for _, h := range holds {
			h.alone = true
		}
	}
	return r, err, again
}

// request gives back, or asks for holds. One without an answer is found out about by resolve.
func (s *Session) request(time.Duration, *time.Duration) bool {
	if s.giveBack() {
		return true
	}
	holds, names := take(&s.asks, func(h *Hold) bool { return h.phase == phaseNew })
	if len(holds) == 0 {
		return false
	}
	first := holds[0]
	if l := first.lease; l.id == 0 {
		s.asks = append(holds, s.asks...)
		if err := s.grant(l); err != nil && !passes(err) {
			s.lose(l, err)
		}
		return true
	}
	s.number++
	owner, sql := s.owner+itoa(s.number), askSQL[first.kind][1]
	if first.try {
		sql = askSQL[first.kind][0]
	}
	for _, h := range holds {
		h.phase, h.owner = phaseSent, owner
	}
	argument := names[0]
	if first.kind == kindLock || first.kind == kindLocks {
		argument = array(names)
	}
	r, err, again := s.send(holds, sql, argument, owner, itoa(first.lease.id), first.last)
	if errors.Is(err, ErrUnknown) {
		return true
	} else if errors.Is(err, ErrLost) {
		first.lease.renewAt = 0 // it is gone, it seems
	}
	for i, h := range slices.Backward(holds) {
		switch {
		case h.phase != phaseSent:
		case err == nil && r[i][0] == nil:
			s.settle(h, ErrHeld)
		case err == nil:
			granted, channel := h.try || string(r[i][1]) == "t", ""
			if !granted {
				channel = string(r[i][2])
			}
			s.adopt(h, number(r[i][0]), granted, channel)
		case again && !h.over() && (h.alone || !h.try):
			h.phase = phaseNew
			s.asks = slices.Insert(s.asks, 0, h)
		default:
			s.settle(h, fmt.Errorf("%s: %w", h, err))
		}
	}
	return true
}

// settle ends a hold of which the server has nothing.
func (s *Session) settle(h *Hold, err error) {
	s.finish(h, err)
	s.forget(h)
}

// adopt notes what the server has for a hold. Perhaps nobody wants it any more.
func (s *Session) adopt(h *Hold, token int64, granted bool, channel string) {
	h.token.Store(token)
	s.byToken[token] = h
	h.phase = phaseQueued
	switch {
	case h.over():
		s.gives = append(s.gives, h)
	case granted:
		s.granted(h)
	default:
		h.channel, s.relisten = channel, true
		s.waiting++
		if h.impatient {
			s.finish(h, ErrHeld)
		}
	}
}

// giveBack releases, resigns, or leaves the queue.
func (s *Session) giveBack() bool {
	holds, names := take(&s.gives, func(h *Hold) bool { return h.phase != phaseDone })
	if len(holds) == 0 {
		return false
	}
	var tokens []string
	for _, h := range holds {
		h.releases++
		tokens = append(tokens, itoa(h.token.Load()))
	}
	first, args := holds[0], []string{array(names), tokens[0]}
	sql := "SELECT %s.release_locks($1, $2)"
	switch {
	case first.holdFor > 0:
		sql = "SELECT pg_catalog.bool_and(%s.release_lock(u.n, $2, $3, true)) FROM pg_catalog.unnest($1::text[]) AS u(n)"
		args = append(args, milliseconds(first.holdFor))
	case first.kind == kindTerm:
		sql, args[0] = "SELECT %s.resign($1, $2)", names[0]
	case first.kind != kindLocks:
		sql, args[1] = "SELECT released FROM %s.release_each($1, $2)", array(tokens)
	}
	r, err, again := s.send(holds, sql, args...)
	var refused *pgconn.PgError
	tooLong := first.holdFor > 0 && errors.As(err, &refused) && refused.Code == "53400" // than lock_election.max_hold_for
	for i, h := range slices.Backward(holds) {
		switch {
		case h.phase == phaseDone:
		case err == nil:
			// One that is sent again and finds nothing was done before, as far as anybody knows.
			if string(r[i][0]) != "t" && h.releases == 1 {
				h.releaseErr = ErrLost
			} else if string(r[i][0]) != "t" && h.holdFor > 0 {
				h.releaseErr = ErrUnknown
			}
			s.forget(h)
		case again || errors.Is(err, ErrLimit) && !tooLong:
			s.gives = slices.Insert(s.gives, 0, h)
		case h.holdFor > 0:
			h.releaseErr, h.holdFor, h.releases = err, 0, 0 // it is released all the same
			s.gives = slices.Insert(s.gives, 0, h)
		default:
			// Perhaps a right was taken away. The sweep after a renewal finds a ghost.
			h.releaseErr = fmt.Errorf("%w: %w", ErrUnknown, err)
			s.forget(h)
		}
	}
	return true
}

// --- the sweep ---

const terminateSQL = "SELECT pg_catalog.pg_terminate_backend(a.pid, $3) FROM pg_catalog.pg_stat_activity a WHERE" +
	" a.pid OPERATOR(pg_catalog.=) $1 AND " + startSQL + " OPERATOR(pg_catalog.=) $2" +
	" AND a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()"

// resolve finds out what statements did whose answers were lost. First the backends of the broken connections have to
// be gone, or they could still take a place that nobody knows of. Behind a pooler nobody knows which they were, and a
// role that was set at once (ALTER ROLE .. SET role) may not end them; there more looks follow.
func (s *Session) resolve() {
	s.askAt = s.set.now() + firstRetry
	for len(s.old) > 0 {
		known := !s.old[0].pooled && s.old[0].start != ""
		if old := s.old[0]; known {
			limit := itoa(s.limit(s.lease).Milliseconds() / 2)
			r, err := s.exec(s.lease, terminateSQL, old.pid, old.start, limit)
			if known = !errors.Is(err, ErrDenied); known && (err != nil || len(r) > 0 && string(r[0][0]) != "t") {
				return
			}
		}
		if !known {
			s.late = 3
		}
		s.old = s.old[1:]
	}
	s.unanswered = false
	for _, l := range slices.Clone(s.leases) {
		if l.id != 0 && !l.over && !s.sweep(l) {
			s.unanswered = true
			return
		}
	}
	s.askAt = 0
}

// sweepDue: after each renewal, when a place of ours is announced, and now and then while something waits: often where
// no announcement comes.
func (s *Session) sweepDue(now time.Duration, next *time.Duration) bool {
	interval := 30 * 24 * time.Hour
	if s.waiting > 0 && !s.wire.hears {
		interval = deafSweep
	} else if s.late > 0 {
		interval = s.limit(s.lease)
	} else if s.waiting > 0 {
		interval = waitSweep
	}
	for _, l := range s.leases {
		due := l.sweptAt + interval
		if l.id == 0 || l.holds == 0 && s.late == 0 {
			continue
		} else if l.swept && now < due && len(l.hints) == 0 {
			sooner(next, due)
			continue
		}
		if l.swept && now < due {
			s.look(l)
		} else if s.sweep(l); l == s.lease {
			s.late = max(0, s.late-1)
		}
		return true
	}
	return false
}

const lookSQL = "SELECT u.t FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bigint[])," +
	" pg_catalog.unnest($3::boolean[])) AS u(n, t, e) WHERE CASE WHEN u.e THEN %s.is_leader(u.n, u.t)" +
	" ELSE %s.is_held(u.n, u.t) END"

// look tells those that were announced, if they are granted indeed.
func (s *Session) look(l *lease) {
	var names, tokens, terms []string
	for _, h := range l.hints {
		if h.channel != "" {
			names, tokens = append(names, h.names[0]), append(tokens, itoa(h.token.Load()))
			terms = append(terms, fmt.Sprint(h.kind == kindTerm))
		}
	}
	l.hints = nil
	r, err := s.exec(l, lookSQL, array(names), array(tokens), array(terms))
	l.swept = l.swept && err == nil
	for _, row := range r {
		if h := s.byToken[number(row[0])]; h != nil && h.channel != "" {
			s.granted(h)
		}
	}
}

// sweep compares what hangs on a lease with what is wanted. Granted: the waiter is told. Not there any more: lost.
// There, ours and wanted by nobody: the ghost of an answer that was lost, given back. Asked for without an answer, and
// there: adopted; not there: asked for again. False: the server did not tell.
func (s *Session) sweep(l *lease) bool {
	l.hints = nil
	r, err := s.exec(l, "SELECT kind, name, token, granted, channel, owner FROM %s.lease_holds($1)", itoa(l.id))
	if errors.Is(err, ErrLost) {
		l.renewAt = 0
	} else if err != nil && s.wire != nil {
		s.askAt = s.set.now() + 2*firstRetry
	}
	if err != nil || l.over {
		return false
	}
	l.swept, l.sweptAt, s.relisten = true, s.set.now(), true
	sent, names, granted := map[string]*Hold{}, map[int64]int{}, map[int64]bool{}
	for h := range s.holds {
		for _, name := range h.names {
			if h.phase == phaseSent {
				sent[h.owner+" "+name] = h
			}
		}
	}
	for _, row := range r {
		name, token, owner := string(row[1]), number(row[2]), string(row[5])
		names[token]++
		granted[token] = string(row[3]) == "t"
		if s.byToken[token] != nil {
		} else if h := sent[owner+" "+name]; h != nil {
			s.adopt(h, token, granted[token], string(row[4]))
		} else if strings.HasPrefix(owner, s.owner) {
			h = &Hold{s: s, lease: l, names: []string{name}, phase: phaseQueued, released: make(chan struct{})}
			if string(row[0]) == "election" {
				h.kind = kindTerm
			}
			h.token.Store(token)
			h.state.Store(stateOver)
			s.gives = append(s.gives, h)
		}
	}
	var again []*Hold
	for h := range s.holds {
		switch token := h.token.Load(); {
		case h.lease != l:
		case h.phase == phaseSent && h.over():
			s.forget(h)
		case h.phase == phaseSent:
			h.phase = phaseNew
			again = append(again, h)
		case h.over() || h.phase == phaseNew:
		case names[token] < len(h.names):
			s.finish(h, fmt.Errorf("%w: the server has ended it: by force, or with another token", ErrLost))
		case h.phase == phaseQueued && granted[token]:
			s.granted(h)
		}
	}
	slices.SortFunc(again, func(a, b *Hold) int { return cmp.Compare(a.seq, b.seq) })
	s.asks = append(again, s.asks...)
	return true
}

// --- announcements ---

// listen makes the connection listen to the channels of all who wait, and of the observers. A channel that nobody uses
// any more is left with the next change, or sweep. Before the notification that tests LISTEN is here, and where none
// comes or LISTEN is refused, the session looks often.
func (s *Session) listen(time.Duration, *time.Duration) bool {
	if !s.relisten || !s.wire.announces {
		return false
	}
	s.relisten = false
	var sql strings.Builder
	wanted := map[string]bool{}
	for h := range s.holds {
		if h.channel != "" && !s.wire.listens[h.channel] {
			h.lease.hints = append(h.lease.hints, h) // what was granted before
		}
		wanted[h.channel] = true
	}
	for hint, channel := range s.observers {
		wanted[channel] = true
		tell(hint)
	}
	delete(wanted, "")
	for channel := range wanted {
		if !s.wire.listens[channel] {
			sql.WriteString("LISTEN " + channel + ";")
		}
	}
	for channel := range s.wire.listens {
		if !wanted[channel] {
			sql.WriteString("UNLISTEN " + channel + ";")
		}
	}
	if sql.Len() == 0 {
		return false
	}
	if !s.wire.tested {
		sql.WriteString("LISTEN " + s.self + "; NOTIFY " + s.self)
		wanted[s.self], s.wire.tested = true, true
	}
	s.wire.listens = wanted
	if _, err := s.exec(s.lease, sql.String()); err != nil && s.wire != nil {
		s.wire.announces, s.wire.hears = false, false
	}
	return true
}

// tell never blocks: an observer that has not looked yet will.
func tell(hint chan struct{}) {
	select {
	case hint <- struct{}{}:
	default:
	}
}

// heard takes the notifications. One decides nothing: who is announced is looked at.
func (s *Session) heard(wire *wire) {
	for _, n := range wire.heard {
		wire.hears = wire.hears || n.Channel == s.self
		// {"event":"granted","token":"266371455778818",...}, or "term"
		fields := strings.Split(n.Payload, `"`)
		for i := 2; i < len(fields); i++ {
			h := s.byToken[number([]byte(fields[i]))]
			if h != nil && h.channel != "" && (fields[i-2] == "token" || fields[i-2] == "term") {
				h.lease.hints = append(h.lease.hints, h)
			}
		}
		for hint, channel := range s.observers {
			if channel == n.Channel {
				tell(hint)
			}
		}
	}
	wire.heard = nil
}
