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
	mostItems = 128                    // of a call
	lookEvery = 250 * time.Millisecond // while something waits, and LISTEN does not work
	pause     = 100 * time.Millisecond // before an item that the server cannot carry out at present is sent again
)

// item is a request or a release, for one call of lease_sync or more.
type item struct {
	action        string
	names         []string
	number, value string        // as lease_sync has them, as owner
	owner         string        // of a request, and of no other
	h             *Hold         // nil: a ghost's release
	at            time.Duration // it is not sent before
	again         bool          // it may have been carried out
	lost          bool          // ... by a call whose reply was lost
	pending       bool          // it was carried out, and is not durable yet
}

func (i *item) gives() bool { return i.action == "release" || i.action == "resign" }

// turn is one call of lease_sync, and what is there of its reply.
type turn struct {
	lease  *lease
	items  []*item
	silent bool // nothing but releases: the reply tells nothing of the lease
	sent   time.Duration
	limit  time.Time
	args   [][]byte
	rows   rows
	err    error
}

// --- with s.mu locked, as all that follows ---

// join makes a turn for a caller, in its own goroutine, if the connection is free. Otherwise those who use it do.
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

// reserved tells whether the session's goroutine waits for the connection, to do what only it can.
func (s *Session) reserved(l *lease) bool {
	return l.id == 0 || s.asking > 0 || slices.ContainsFunc(s.leases, func(other *lease) bool {
		return other != l && s.due(other) <= s.set.now()
	})
}

// leave makes the maker of a turn give its reply up. The session's goroutine reads the rest.
func (s *Session) leave(t *turn) {
	if t != nil && s.turn == t && s.half == nil && s.wire != nil {
		s.wire.interrupt()
	}
}

// due is the time of the next turn of a lease.
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
	blocked := false // by an earlier request, as in begin
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

// begin takes what is queued. After a failure the first call only renews, and reads the news: what was sent before may
// have been done.
func (s *Session) begin(l *lease) *turn {
	now, limit := s.set.now(), s.limit(l)
	t := &turn{lease: l, sent: now, limit: time.Now().Add(limit), silent: now < l.renewAt && l.waiting == 0 && !l.look}
	names, blocked, most := 0, false, mostItems
	// requests wait for the disk, and so would releases in the same call; those who release are in time for the next one
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
				s.forget(i.h) // nobody wants it any more
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

// texts are the items, as an array in binary format: the text of an array depends on array_nulls.
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

// make sends a turn's call, or reads the rest of its reply, and tells everybody what came of it. If more are woken up than
// the maker itself, they get the time to queue their next requests before the next turn begins.
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

// ended takes the reply of a turn, or the error in its place.
func (s *Session) ended(t *turn, wire *wire, err error) {
	l, code := t.lease, sqlState(err)
	s.hear(wire, err)
	switch {
	case err == nil:
		s.reply(t)
		return
	case l.over || s.err != nil:
	case (code == "26000" || code == "42P05" || code == "0A000") && !wire.plain:
		wire.plain = true // behind a pooler, or the function has changed
	case s.wire == nil: // it may have taken effect
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

// requeue puts items in front of all others. Items of a lease that has ended are forgotten.
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

// reply takes a reply: the lease, the results of the items, the news.
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
		held := head[colComplete] == "" // news are, until they are durable
		l.bare, l.look = l.bare && held, l.look || held
	}
	if head[colValidity] != "" {
		s.renewed(l, t.sent, time.Duration(number(head[colValidity]))*time.Millisecond)
	} else if !t.silent && l.renewAt <= s.set.now() {
		l.renewAt = s.failed(fmt.Errorf("%w: the lease is not durable yet", ErrUnavailable))
	}
	there := map[int64]int{} // names, by token
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
		if i != nil { // an old call
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

// result takes what has become of an item. It reports false if the item has to be sent again.
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

// refused takes an error of one item.
func (s *Session) refused(i *item, l *lease, err error) {
	h := i.h
	switch tooLong := i.value != "" && sqlState(err) == "53400"; { // than lock_election.max_hold_for
	case passes(err) || i.gives() && errors.Is(err, ErrLimit) && !tooLong:
		i.at = s.set.now() + pause
		s.requeue(l, []*item{i})
	case i.gives() && i.value != "":
		h.releaseErr, i.value, i.again = err, "", false // it is released all the same
		s.requeue(l, []*item{i})
	case i.gives(): // perhaps a right was taken away, and comes back
		if h != nil {
			h.releaseErr = fmt.Errorf("%w: %w", ErrUnknown, err)
			s.gaveBack(i, true)
		}
		l.queue = append(l.queue, &item{action: i.action, names: i.names, number: i.number, at: s.set.now() + l.ttl/3})
	default:
		s.settle(h, fmt.Errorf("%s: %w", h, err))
	}
}

// gaveBack takes the end of a release. If it is sent again and finds nothing, it was done before, as far as anybody knows.
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

// news takes a row that answers no item: a request whose reply was lost or pending, a place that was granted, the end of
// a hold, or the ghost of a request that nobody wants any more.
func (s *Session) news(l *lease, row []string, token int64) {
	h, granted := l.byToken[token], row[colEvent] == "granted"
	switch {
	case row[colEvent] == "lost" && h != nil:
		s.finish(h, fmt.Errorf("%w: the server has ended it: %s", ErrLost, row[colReason]))
	case row[colEvent] == "lost":
	case row[colEvent] == "evicted" && h != nil:
		h.evicted = h.evicted || h.state.Load() == stateHeld // it may be told again, or for another of its names
		s.finish(h, errEvicted)
	case h != nil && granted && h.queued:
		s.granted(h)
	case h != nil:
	case l.open[row[colOwner]] != nil:
		h = l.open[row[colOwner]]
		l.queue = slices.DeleteFunc(l.queue, func(i *item) bool { return i == h.ask })
		if row[colEvent] == "evicted" { // before anybody knew of its grant
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

// compare takes a reply that has everything: what it does not have is lost.
func (s *Session) compare(l *lease, there map[int64]int) {
	for token, h := range l.byToken {
		if there[token] < len(h.names) && !h.over() {
			s.finish(h, fmt.Errorf("%w: the server has ended it", ErrLost))
		}
	}
}

// askAgain takes a reply that has all news: a pending request that is not among them was not done, or has ended.
func (s *Session) askAgain(l *lease) {
	var again []*item
	for _, h := range l.open {
		if h.ask.pending {
			h.ask.pending = false
			again = append(again, h.ask)
		}
	}
	slices.SortFunc(again, func(a, b *item) int { // by their numbers
		return cmp.Or(len(a.owner)-len(b.owner), strings.Compare(a.owner, b.owner))
	})
	s.requeue(l, again)
}

// adopt takes what the server has for a request. Perhaps nobody wants it any more.
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

// settle ends a hold of which the server has nothing.
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
