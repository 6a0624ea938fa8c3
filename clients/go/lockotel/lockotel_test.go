package lockotel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"lock-election.invalid/lockelection"
	"lock-election.invalid/lockelection/lockotel"
)

const patience = time.Minute

func attributes(span tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, one := range span.Attributes {
		all[string(one.Key)] = one.Value.AsInterface()
	}
	return all
}

func TestSpans(t *testing.T) {
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	otel.SetTracerProvider(provider)
	named := func(name string) (found []tracetest.SpanStub) {
		for _, span := range exporter.GetSpans() {
			if span.Name == name {
				found = append(found, span)
			}
		}
		return found
	}
	until := func(what string, condition func() bool) {
		t.Helper()
		for ; !condition(); time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("waited in vain: %s", what)
			}
		}
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}

	config := pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "spans"
	s, err := lockelection.Open(ctx, config, lockelection.WithTTL(10*time.Second),
		lockelection.WithOnEvent(lockotel.Spans(nil)))
	if err != nil {
		t.Fatal(err)
	}
	work, parent := provider.Tracer("work").Start(ctx, "work")
	name := fmt.Sprintf("spans %d", time.Now().UnixNano())
	h, err := s.Lock(work, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryLock(work, name); !errors.Is(err, lockelection.ErrHeld) {
		t.Fatal(err)
	}
	parent.End()
	time.Sleep(100 * time.Millisecond)
	exec("SELECT force_release_lock($1)", name)
	until("the loss", func() bool { return len(named("hold lock")) == 1 })
	p, err := s.Lock(ctx, name, lockelection.Permit(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(ctx, name, lockelection.Permit(3)); !errors.Is(err, lockelection.ErrInvalid) {
		t.Fatal(err)
	}
	exec("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'spans'")
	until("the suspension", func() bool { return len(named("suspend session")) == 1 })
	if err := errors.Join(p.Unlock(ctx), s.Close(ctx)); err != nil {
		t.Fatal(err)
	}

	acquires, holds := named("acquire lock"), named("hold lock")
	if len(acquires) != 4 || len(holds) != 2 {
		t.Fatalf("%d acquires, %d holds", len(acquires), len(holds))
	}
	acquired, refused, wrong := acquires[0], acquires[1], acquires[3]
	lost, released := holds[0], holds[1]
	want := map[string]any{"lock_election.names": []string{name}, "lock_election.mode": "lock",
		"lock_election.token": h.Token(), "lock_election.outcome": "acquired"}
	if got := attributes(acquired); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("attributes %v", got)
	}
	for _, span := range []tracetest.SpanStub{acquired, refused, lost} {
		if span.Parent.SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is no child", span.Name)
		}
	}
	if acquired.InstrumentationScope.Name != "lock_election" {
		t.Errorf("scope %v", acquired.InstrumentationScope)
	}
	if held := lost.EndTime.Sub(lost.StartTime); held < 100*time.Millisecond || held > patience {
		t.Errorf("held for %v", held)
	}
	if gap := lost.StartTime.Sub(acquired.EndTime).Abs(); gap > time.Second {
		t.Errorf("%v between the grant and the hold", gap)
	}
	if lost.Status.Code != codes.Error || attributes(lost)["error.type"] != "lost" {
		t.Errorf("lost: %v %v", lost.Status, lost.Attributes)
	}
	if wrong.Status.Code != codes.Error || attributes(wrong)["error.type"] != "invalid" {
		t.Errorf("wrong: %v %v", wrong.Status, wrong.Attributes)
	}
	for _, span := range []tracetest.SpanStub{acquired, refused, released} {
		if span.Status.Code != codes.Unset || attributes(span)["error.type"] != nil {
			t.Errorf("%s: %v %v", span.Name, span.Status, span.Attributes)
		}
	}
	if got := attributes(refused)["lock_election.outcome"]; got != "not_acquired" {
		t.Errorf("outcome %v", got)
	}
	suspended := named("suspend session")[0]
	if suspended.Parent.IsValid() || len(suspended.Attributes) != 1 ||
		suspended.Attributes[0] != attribute.String("lock_election.outcome", "resumed") {
		t.Errorf("suspension: %v", suspended)
	}
}
