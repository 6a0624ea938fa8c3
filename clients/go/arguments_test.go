package lockelection

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type badCall struct {
	call func() error
	says string // in the error: what it is about, what came, what is allowed
}

func refuses(t *testing.T, f *fake, calls map[string]badCall) {
	t.Helper()
	for what, bad := range calls {
		before := len(f.sent(""))
		err := bad.call()
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for part := range strings.SplitSeq(bad.says, " | ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
		if sent := f.sent(""); len(sent) != before {
			t.Errorf("%s: was sent: %v", what, sent[before:])
		}
	}
}

var nilContext context.Context

const tooLarge = time.Duration(math.MaxInt64)

func TestUnitArgumentsOfSessions(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		ctx := t.Context()
		config := must(pgx.ParseConfig("host=fake sslmode=disable"))
		pool := must(pgxpool.NewWithConfig(ctx, must(pgxpool.ParseConfig("host=fake sslmode=disable"))))
		defer pool.Close()
		opened := func(opts ...SessionOption) func() error {
			return func() error { _, err := f.tryOpen(ctx, opts...); return err }
		}
		refuses(t, f, map[string]badCall{
			"no pool":          {func() error { _, err := NewSession(ctx, nil); return err }, "the pool is nil"},
			"no configuration": {func() error { _, err := Open(ctx, nil); return err }, "the configuration"},
			"an empty one":     {func() error { _, err := Open(ctx, &pgx.ConnConfig{}); return err }, "the configuration"},
			"no context":       {func() error { _, err := NewSession(nilContext, pool); return err }, "the context is nil"},
			"no context 2":     {func() error { _, err := Open(nilContext, config); return err }, "the context is nil"},
			"no context 3":     {func() error { _, err := Connect(nilContext, "host=fake"); return err }, "the context is nil"},
			"an option":        {opened(nil), "an option is nil"},
			"an empty option":  {opened(TTLOption{}), "an option is nil"},
			"a plain number":   {opened(WithTTL(30)), "TTL | 30ns | 100 ms to 24 days | WithTTL(30*time.Second)"},
			"a short TTL":      {opened(WithTTL(99 * time.Millisecond)), "TTL | 99ms | 100 ms to 24 days"},
			"a negative TTL":   {opened(WithTTL(-time.Minute)), "TTL | -1m0s | 100 ms to 24 days"},
			"no TTL":           {opened(WithTTL(0)), "TTL | 0s | 100 ms to 24 days"},
			"the longest TTL":  {opened(WithTTL(tooLarge)), "TTL | h | 100 ms to 24 days"},
			"a name":           {opened(WithName("a\xff")), `name of the session | "a\xff" | UTF-8`},
			"a zero byte":      {opened(WithName("a\x00")), `name of the session | "a\x00" | zero byte`},
		})
		s := f.open(WithTTL(fakeTTL + time.Microsecond))
		expect(t, "a TTL counts milliseconds", s.lease.ttl, fakeTTL)
		_, err := s.Reopen(nilContext)
		expect(t, "reopen", errors.Is(err, ErrInvalid), true)
		err = s.Close(nilContext)
		expect(t, "close without a context", errors.Is(err, ErrInvalid), true)
		expect(t, "closes all the same", len(f.sent("revoke_lease")), 1)
	})
}

func TestUnitArgumentsOfLocks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s, ctx := f.open(), t.Context()
		lock := func(name string, opts ...LockOption) func() error {
			return func() error { _, err := s.Lock(ctx, name, opts...); return err }
		}
		all := func(names ...string) func() error {
			return func() error { _, err := s.LockAll(ctx, names); return err }
		}
		each := func(names ...string) func() error {
			return func() error { _, err := s.TryLockEach(ctx, names); return err }
		}
		many := make([]string, 1001)
		long := strings.Repeat("x", 65536)
		refuses(t, f, map[string]badCall{
			"no context":       {func() error { _, err := s.Lock(nilContext, "x"); return err }, "the context is nil"},
			"no context 2":     {func() error { _, err := s.TryLockAll(nilContext, many[:1]); return err }, "the context is nil"},
			"no context 3":     {func() error { _, err := s.TryLockEach(nilContext, nil); return err }, "the context is nil"},
			"an empty name":    {lock(""), "the name is empty | 1 to 255 bytes"},
			"a long name":      {lock(long), "the name has 65536 bytes | 1 to 255"},
			"a zero byte":      {lock("a\x00b"), `the name "a\x00b" | zero byte`},
			"not UTF-8":        {lock("a\xc3"), `the name "a\xc3" | UTF-8`},
			"a surrogate":      {lock("\xed\xa0\x80"), `the name "\xed\xa0\x80" | UTF-8`},
			"no names":         {all(), "0 names | 1 to 1000"},
			"many names":       {all(many...), "1001 names | 1 to 1000"},
			"a name twice":     {all("x", "y", "x"), `the name "x" appears twice`},
			"one of several":   {all("x", "\xff"), `the name "\xff" | UTF-8`},
			"each twice":       {each("x", "x"), `the name "x" appears twice`},
			"one of each":      {each("x", "a\x00"), "zero byte"},
			"an option":        {lock("x", nil), "an option is nil"},
			"an empty option":  {lock("x", TTLOption{}), "an option is nil"},
			"a plain number":   {lock("x", WithTTL(5)), "TTL | 5ns | WithTTL(30*time.Second)"},
			"a long TTL":       {lock("x", WithTTL(24*24*time.Hour+1)), "TTL | 576h0m0.000000001s | 100 ms to 24 days"},
			"a negative wait":  {lock("x", WaitFor(-5)), "WaitFor is -5ns | 0, which does not wait, or more"},
			"no permit":        {lock("x", Permit(0)), "0 permits | 1 to 2147483647"},
			"negative permits": {lock("x", Permit(-3)), "-3 permits | 1 to 2147483647"},
			"many permits":     {lock("x", Permit(math.MaxInt32+1)), "2147483648 permits | 1 to 2147483647"},
			"a shared permit":  {lock("x", Permit(1), Shared()), "a permit is not Shared"},
			"several permits": {func() error { _, err := s.LockAll(ctx, []string{"x", "y"}, Permit(1)); return err },
				"Permit has only one name"},
			"a try that waits": {func() error { _, err := s.TryLock(ctx, "x", WaitFor(1)); return err }, "does not wait"},
		})
		expect(t, "a very long wait", lock("x", WaitFor(tooLarge), WithTTL(time.Minute))() == nil, true)
		expect(t, "leases", len(f.sent("grant_lease")), 2)
	})
}

// A release of no sense releases all the same.
func TestUnitArgumentsOfHolds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s, ctx := f.open(), t.Context()
		for says, unlock := range map[string]func(h *Hold) error{
			"HoldFor is -1ns | from 0 to 24 days":  func(h *Hold) error { return h.Unlock(ctx, HoldFor(-1)) },
			"HoldFor is 2562047h | 0 to 24 days":   func(h *Hold) error { return h.Unlock(ctx, HoldFor(tooLarge)) },
			"HoldFor is -2562047h | 0 to 24 days":  func(h *Hold) error { return h.Unlock(ctx, HoldFor(math.MinInt64)) },
			"an option is nil | \"x\" is released": func(h *Hold) error { return h.Unlock(ctx, nil) },
			"the context is nil":                   func(h *Hold) error { return h.Unlock(nilContext) },
		} {
			h := f.lock(s, "x")
			err := unlock(h)
			for part := range strings.SplitSeq(says, " | ") {
				if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), part) {
					t.Errorf("%v, expected %q", err, part)
				}
			}
			expect(t, "released", len(f.sent("release x")), 1)
			f.when(func() { f.log = nil })
		}
		h := f.lock(s, "y")
		for _, tx := range []any{nil, (*sql.Tx)(nil), (*pgxpool.Tx)(nil), pgx.Tx(nil), 1} {
			if err := h.Fence(ctx, tx); !errors.Is(err, ErrInvalid) {
				t.Errorf("a fence in %T: %v", tx, err)
			}
		}
		refuses(t, f, map[string]badCall{
			"no context": {func() error { return h.Fence(nilContext, &sql.Tx{}) }, "the context is nil"},
		})
	})
}

func TestUnitArgumentsOfElections(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s, ctx := f.open(), t.Context()
		e, bad := s.Election("e"), s.Election("e\xff")
		lead := func(context.Context, *Hold) {}
		refuses(t, f, map[string]badCall{
			"no context":         {func() error { return e.Campaign(nilContext, "me") }, "the context is nil"},
			"no context 2":       {func() error { return e.Proclaim(nilContext, "me") }, "the context is nil"},
			"no context 3":       {func() error { return e.Run(nilContext, "me", lead) }, "the context is nil"},
			"no context 4":       {func() error { _, err := e.Leader(nilContext); return err }, "the context is nil"},
			"the name":           {func() error { return bad.Campaign(ctx, "me") }, `name of the election "e\xff" | UTF-8`},
			"the name 2":         {func() error { return bad.Proclaim(ctx, "me") }, `name of the election "e\xff" | UTF-8`},
			"the name 3":         {func() error { return bad.Run(ctx, "me", lead) }, `name of the election "e\xff" | UTF-8`},
			"the name 4":         {func() error { _, err := bad.Leader(ctx); return err }, `name of the election "e\xff" | UTF-8`},
			"no name":            {func() error { return s.Election("").TryCampaign(ctx, "me") }, "election is empty | 1 to 255"},
			"no candidate":       {func() error { return e.TryCampaign(ctx, "") }, "candidate is empty | 1 to 4096 bytes"},
			"a long candidate":   {func() error { return e.Proclaim(ctx, strings.Repeat("x", 20000)) }, "20000 bytes | 1 to 4096"},
			"a candidate":        {func() error { return e.Campaign(ctx, "a\x00") }, `the candidate "a\x00" | zero byte`},
			"a shared candidate": {func() error { return e.Campaign(ctx, "me", Shared()) }, "not for an election"},
			"a permit":           {func() error { return e.Campaign(ctx, "me", Permit(2)) }, "not for an election"},
			"a negative wait":    {func() error { return e.Campaign(ctx, "me", WaitFor(-1)) }, "WaitFor is -1ns"},
			"nobody leads":       {func() error { return e.Run(ctx, "me", nil) }, "the function that leads is nil"},
		})
		if _, open := <-bad.Observe(ctx); open {
			t.Error("an election without a valid name is observed")
		}
		if _, open := <-e.Observe(nilContext); open {
			t.Error("an election is observed without a context")
		}
	})
}

func must[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}
