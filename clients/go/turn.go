package lockelection

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	mostItems = 128                    // maximum number of items in a call of lease_sync
	lookEvery = 250 * time.Millisecond // interval of turns while a hold waits but LISTEN does not work
	pause     = 100 * time.Millisecond // delay before an item is sent again after a temporary error
)

// item is a request or a release, sent as an item of one or more calls of lease_sync.
type item struct {
	action        string
	names         []string
	number, value string        // as in lease_sync
	owner         string        // as in lease_sync; only requests have it
	h             *Hold         // nil for the release of a ghost, see news
	at            time.Duration // earliest time to send it
	again         bool          // whether an earlier call may have carried it out
	lost          bool          // whether the reply to an earlier call with the item was lost
	pending       bool          // whether the item was carried out, but is not durable yet
}

func (i *item) gives() bool { return i.action == "release" || i.action == "resign" }

// turn is one call of lease_sync, with the part of its reply that was read so far.
type turn struct {
	lease  *lease
	items  []*item
	silent bool // whether the call has only releases, so that its reply does not renew the lease
	sent   time.Duration
	limit  time.Time
	args   [][]byte
	rows   rows
	err    error
}

// --- with s.mu locked, as in all functions below ---

// join runs a turn in the caller's goroutine if the connection is free. Otherwise it wakes up the session's goroutine.
func (s *Session) join(ctx context.Context, l *lease) {
	if s.busy || s.wire == nil || s.err != nil || ctx.Err() != nil || s.reserved(l) || s.due(l) > s.set.now() {
		s.wake()
		return
	}
	t := s.begin(l)
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leave(t)
	})()
	s.make(t, (*wire).sync, 1)
}

// reserved reports whether other work has priority: the grant of this lease, a waiting statement, or another lease's
// turn.
func (s *Session) reserved(l *lease) bool {
	return l.id == 0 || s.asking > 0 || slices.ContainsFunc(s.leases, func(other *lease) bool {
		return other != l && s.due(other) <= s.set.now()
	})
}

// leave makes the caller that runs turn t stop reading the reply. The session's goroutine reads the rest.
func (s *Session) leave(t *turn) {
	if t != nil && s.turn == t && s.half == nil && s.wire != nil {
		s.wire.interrupt()
	}
}

// due returns the time of the next turn of a lease.
func (s *Session) due(l *lease) time.Duration {
	due := l.renewAt
	if s.failures > 0 {
		return due
	} else if l.look {
		return 0
	}
	if l.waiting > 0 && s.wire != nil && !(s.wire.hears && s.wire.listens[l.channel]) {
		sooner(&due, l.lastAt+lookEvery)
	}
	blocked := false // whether an earlier request must be sent before the later ones, as in begin
	for _, i := range l.queue {
		if i.gives() || !blocked {
			sooner(&due, i.at)
		}
		if blocked = blocked || !i.gives() && i.at > 0; due == 0 {
			break
		}
	}
	return due
}

// begin returns a new turn with queued items. After a failed call (bare), the turn has no items: it only renews the
// lease and reads the news, which shows what the failed call has carried out.
func (s *Session) begin(l *lease) *turn {
	now, limit := s.set.now(), s.limit(l)
	t := &turn{lease: l, sent: now, limit: time.Now().Add(limit), silent: now < l.renewAt && l.waiting == 0 && !l.look}
	names, blocked, most := 0, false, mostItems
	// A call with requests waits for a flush, which would delay releases in it. So send releases alone, and requests
	// with the next call.
	l.apart = !l.apart && !l.bare && slices.ContainsFunc(l.queue, func(i *item) bool { return i.gives() && i.at <= now })
	if l.bare {
		most = 0
	} else if l.alone > 0 {
		most = 1
		l.alone--
	}
	l.queue = slices.DeleteFunc(l.queue, func(i *item) bool {
		if i.gives() || !l.apart {
			names += len(i.names)
		}
		switch {
		case !i.gives() && i.h.over():
			if !l.bare {
				s.forget(i.h) // no caller waits for the request any more
			}
			return !l.bare
		case i.at > now || len(t.items) >= most || names > maxNames || (blocked || l.apart) && !i.gives():
			blocked = blocked || !i.gives()
			return false
		case i.h != nil && !i.gives():
			l.open[i.owner] = i.h
		}
		t.silent = t.silent && i.gives() && i.value == ""
		t.items = append(t.items, i)
		return true
	})
	t.silent = t.silent && len(t.items) > 0 && len(l.open) == 0
	l.call++
	t.args = [][]byte{[]byte(itoa(l.id)), []byte(itoa(l.call)), l.incarnation, l.news, t.texts(), nil}
	if !t.silent {
		t.args[5] = []byte(milliseconds(limit / 2))
	}
	s.busy, s.turn, l.look, l.lastAt = true, t, false, now
	return t
}

// texts returns the items as an array in binary format, because the text format depends on the setting array_nulls.
func (t *turn) texts() (array []byte) {
	const dimensions, nulls, textOID = 1, 1, 25
	var texts []string
	for number, i := range t.items {
		for _, name := range i.names {
			texts = append(texts, itoa(int64(number+1)), i.action, name, i.number, i.owner, i.value)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	for _, field := range [...]int{dimensions, nulls, textOID, len(texts), 1} {
		array = binary.BigEndian.AppendUint32(array, uint32(field))
	}
	for _, text := range texts {
		if text == "" {
			array = binary.BigEndian.AppendUint32(array, 1<<32-1) // NULL
		} else {
			array = append(binary.BigEndian.AppendUint32(array, uint32(len(text))), text...)
		}
	}
	return array
}

// make runs step, which sends a turn's call or reads the rest of its reply, and handles the results. If it has woken
// up other callers, it lets them queue their next requests before the next turn. itself is 1 if a caller runs make,
// else 0.
func (s *Session) make(t *turn, step func(*wire, *turn) error, itself int) {
	wire, told := s.wire, s.told
	s.mu.Unlock()
	err := step(wire, t)
	if noSuchFunction(err) && wire.learn(time.Until(t.limit)) {
		t.rows, t.err = nil, nil
		err = wire.sync(t)
	}
	left := isTimeout(err) && !wire.conn.IsClosed() && time.Now().Before(t.limit)
	if !left {
		wire.check(err)
	}
	s.mu.Lock()
	if left {
		s.half = t
		s.free.Broadcast()
		s.wake()
		return
	}
	s.turn, s.half = nil, nil
	s.expire()
	s.ended(t, wire, err)
	s.schema = wire.schema
	if s.told-told > itself {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.release()
	if s.err != nil || s.wire == nil || t.lease.waiting > 0 || s.reserved(t.lease) || s.due(t.lease) <= s.set.now() {
		s.wake()
	}
}

// ended handles the reply to a turn's call, or its error.
func (s *Session) ended(t *turn, wire *wire, err error) {
	l, code := t.lease, sqlState(err)
	s.hear(wire, err)
	switch {
	case err == nil:
		s.reply(t)
		return
	case l.over || s.err != nil:
	case (code == "26000" || code == "42P05" || code == "0A000") && !wire.plain:
		wire.plain = true // the connection is pooled, or the function has changed
	case s.wire == nil: // the call may have taken effect
		l.bare = true
		for _, i := range t.items {
			i.again, i.lost = true, true
		}
	default:
		err = explain(err)
		l.bare, l.renewAt = true, s.failed(err)
		if passes(err) {
			for _, i := range t.items {
				i.at = s.set.now() + pause
			}
		} else if len(t.items) == 1 {
			l.bare = false
			s.refused(t.items[0], l, err)
			return
		} else {
			l.alone = len(t.items)
		}
	}
	s.requeue(l, t.items)
}

// requeue puts items in front of the queue. If the lease has ended, it forgets their holds instead.
func (s *Session) requeue(l *lease, items []*item) {
	if !l.over {
		l.queue = append(slices.Clone(items), l.queue...)
		return
	}
	for _, i := range items {
		if i.h != nil {
			s.forget(i.h)
		}
	}
}

// reply handles a reply: the row of the lease, the results of the items, and the news.
func (s *Session) reply(t *turn) {
	l, head := t.lease, t.rows[0]
	if l.over {
		s.requeue(l, t.items)
		return
	} else if head[colEvent] == "gone" {
		s.lose(l, fmt.Errorf("%w: the server has ended the lease: %s", ErrLost, head[colReason]))
		s.requeue(l, t.items)
		return
	}
	if head[colIncarnation] != "" {
		l.incarnation, l.news, l.channel = []byte(head[colIncarnation]), []byte(head[colNews]), head[colChannel]
		held := head[colComplete] == "" // the reply has no news, because something is not durable yet
		l.bare, l.look = l.bare && held, l.look || held
	}
	if head[colValidity] != "" {
		s.renewed(l, t.sent, time.Duration(number(head[colValidity]))*time.Millisecond)
	} else if !t.silent && l.renewAt <= s.set.now() {
		l.renewAt = s.failed(fmt.Errorf("%w: the lease is not durable yet", ErrUnavailable))
	}
	there := map[int64]int{} // number of the token's names in the reply
	var again []*item
	for _, row := range t.rows[1:] {
		token := number(row[colToken])
		if there[token]++; row[colItem] == "" {
			s.news(l, row, token)
			continue
		}
		n := number(row[colItem]) - 1
		i := t.items[n]
		if i == nil {
			continue
		}
		if t.items[n] = nil; !s.result(l, i, row, token) {
			again = append(again, i)
		}
		there[token] += len(i.names)
	}
	for _, i := range t.items {
		if i != nil { // it has no row, because the call was old (rule 2 in lease-sync.md)
			again = append(again, i)
		}
	}
	s.requeue(l, again)
	if head[colComplete] == "t" {
		s.compare(l, there)
	}
	if head[colComplete] != "" {
		s.askAgain(l)
	}
}

// result handles the result of an item. It returns false if the item must be sent again.
func (s *Session) result(l *lease, i *item, row []string, token int64) bool {
	switch event := row[colEvent]; {
	case event == "error":
		s.refused(i, l, explain(&pgconn.PgError{Severity: "ERROR", Code: row[colState], Message: row[colMessage],
			Detail: row[colDetail], Hint: row[colHint]}))
	case event == "pending" && (i.gives() || i.action == "proclaim"):
		i.again, l.look = true, true
		return false
	case event == "pending":
		i.pending = true
	case i.gives():
		s.gaveBack(i, event == "released")
	case event == "proclaimed":
		s.settle(i.h, nil)
	case event == "not_held":
		s.settle(i.h, fmt.Errorf("%w: %s does not lead any more", ErrLost, i.h))
	case event == "not_granted":
		s.settle(i.h, ErrHeld)
	default:
		s.adopt(i.h, token, event == "granted")
	}
	return true
}

// refused handles an item that the server has rejected.
func (s *Session) refused(i *item, l *lease, err error) {
	h := i.h
	switch tooLong := i.value != "" && sqlState(err) == "53400"; { // HoldFor exceeds lock_election.max_hold_for
	case passes(err) || i.gives() && errors.Is(err, ErrLimit) && !tooLong:
		i.at = s.set.now() + pause
		s.requeue(l, []*item{i})
	case i.gives() && i.value != "":
		h.releaseErr, i.value, i.again = err, "", false // release it without HoldFor
		s.requeue(l, []*item{i})
	case i.gives(): // keep retrying, because a missing privilege may be granted later
		if h != nil {
			h.releaseErr = fmt.Errorf("%w: %w", ErrUnknown, err)
			s.gaveBack(i, true)
		}
		l.queue = append(l.queue, &item{action: i.action, names: i.names, number: i.number, at: s.set.now() + l.ttl/3})
	default:
		s.settle(h, fmt.Errorf("%s: %w", h, err))
	}
}

// gaveBack handles the result of a release. If a repeated release finds nothing held, the first one has succeeded.
func (s *Session) gaveBack(i *item, done bool) {
	h := i.h
	if h == nil {
		return
	} else if !done && !i.again {
		h.releaseErr = ErrLost
	} else if !done && i.value != "" && i.lost {
		h.releaseErr = ErrUnknown
	}
	if h.giving--; h.giving == 0 {
		s.forget(h)
	}
}

// news handles a row that is not the result of an item: a request whose reply was lost or pending, a place that was
// granted, the end of a hold, or a ghost: a grant or place that belongs to no hold, and is released.
func (s *Session) news(l *lease, row []string, token int64) {
	h, granted := l.byToken[token], row[colEvent] == "granted"
	switch {
	case row[colEvent] == "lost" && h != nil:
		s.finish(h, fmt.Errorf("%w: the server has ended it: %s", ErrLost, row[colReason]))
	case row[colEvent] == "lost":
	case row[colEvent] == "evicted" && h != nil:
		h.evicted = h.evicted || h.state.Load() == stateHeld // the row may be repeated, or there may be one for each name
		s.finish(h, errEvicted)
	case h != nil && granted && h.queued:
		s.granted(h)
	case h != nil:
	case l.open[row[colOwner]] != nil:
		h = l.open[row[colOwner]]
		l.queue = slices.DeleteFunc(l.queue, func(i *item) bool { return i == h.ask })
		if row[colEvent] == "evicted" { // it was evicted before the reply with its grant was read
			s.finish(h, errEvicted)
		}
		s.adopt(h, token, granted)
	case strings.HasPrefix(row[colOwner], s.owner):
		i := &item{action: "release", names: []string{row[colName]}, number: itoa(token)}
		if row[colKind] == "election" {
			i.action = "resign"
		}
		l.queue = append(l.queue, i)
	}
}

// compare handles a complete reply: it ends the holds and places that are not in the reply.
func (s *Session) compare(l *lease, there map[int64]int) {
	for token, h := range l.byToken {
		if there[token] < len(h.names) && !h.over() {
			s.finish(h, fmt.Errorf("%w: the server has ended it", ErrLost))
		}
	}
}

// askAgain handles a reply with news: it sends the pending requests again that are not in the reply, because they were
// not carried out, or have ended.
func (s *Session) askAgain(l *lease) {
	var again []*item
	for _, h := range l.open {
		if h.ask.pending {
			h.ask.pending = false
			again = append(again, h.ask)
		}
	}
	slices.SortFunc(again, func(a, b *item) int { // by the request numbers at the end of the owners
		return cmp.Or(len(a.owner)-len(b.owner), strings.Compare(a.owner, b.owner))
	})
	s.requeue(l, again)
}

// adopt records the grant or place of a request, and queues its release if the application no longer waits for it.
func (s *Session) adopt(h *Hold, token int64, granted bool) {
	h.token.Store(token)
	delete(h.lease.open, h.ask.owner)
	h.lease.byToken[token] = h
	switch {
	case h.over():
		s.giveBack(h)
	case granted:
		s.granted(h)
	default:
		h.queued = true
		if h.lease.waiting++; h.impatient {
			s.finish(h, ErrHeld)
		}
	}
}

// settle ends a hold that has neither a grant nor a place on the server.
func (s *Session) settle(h *Hold, err error) {
	s.finish(h, err)
	s.forget(h)
}

// giveBack queues the release of a hold or a place, name by name.
func (s *Session) giveBack(h *Hold) {
	if s.err != nil || h.lease.over || h.giving > 0 {
		return
	}
	action, holdFor := "release", ""
	if h.kind == kindTerm {
		action = "resign"
	}
	if h.holdFor > 0 {
		holdFor = milliseconds(h.holdFor)
	}
	h.giving = len(h.names)
	for n := range h.names {
		h.lease.queue = append(h.lease.queue, &item{action: action, names: h.names[n : n+1], number: itoa(h.token.Load()),
			value: holdFor, h: h})
	}
}
