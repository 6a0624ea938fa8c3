// Command porcupine judges the history of a random run: is there an order of its calls, each somewhere between its sending
// and its answer, in which a lock would have answered as it did? It reads
//
//	[{"name": "n", "op": "acquire", "id": "7", "mode": "exclusive", "limit": 1, "token": 42, "call": 1, "return": 2}, ..]
//
// where op is "acquire" for a call that was granted, "release" for one that gave a hold back, and "end" for what may have
// ended a hold at any time from "call" on: a release of unknown outcome, or the end of its lease. Without "return" the time
// has no end. A call that was not granted is not there: whatever it did for a while, such as a place that its client gave
// back, can only have kept others out.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type call struct {
	Name   string `json:"name"`
	Op     string `json:"op"`
	ID     string `json:"id"`
	Mode   string `json:"mode"`
	Limit  int    `json:"limit"`
	Token  int64  `json:"token"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

// lock is who holds a name, sorted, and the highest token of an exclusive holder so far.
type lock struct {
	holders string
	mode    string
	last    int64
}

func (l lock) has(id string) bool {
	return slices.Contains(strings.Fields(l.holders), id)
}

func (l lock) without(id string) lock {
	l.holders = strings.Join(slices.DeleteFunc(strings.Fields(l.holders), func(h string) bool { return h == id }), " ")
	return l
}

func (l lock) with(c call) lock {
	all := append(strings.Fields(l.holders), c.ID)
	slices.Sort(all)
	l.holders, l.mode = strings.Join(all, " "), c.Mode
	if c.Mode == "exclusive" {
		l.last = c.Token
	}
	return l
}

// free tells whether the lock can be granted as the call asks for it.
func (l lock) free(c call) bool {
	n := len(strings.Fields(l.holders))
	switch {
	case n == 0:
		return c.Mode != "exclusive" || c.Token > l.last
	case l.mode != c.Mode || c.Mode == "exclusive":
		return false
	default:
		return c.Mode == "shared" || n < c.Limit
	}
}

func step(state, input, _ any) []any {
	l, c := state.(lock), input.(call)
	switch c.Op {
	case "acquire":
		if l.free(c) {
			return []any{l.with(c)}
		}
		return nil
	case "release":
		if l.has(c.ID) {
			return []any{l.without(c.ID)}
		}
		return nil
	default: // it may have ended the hold, which may also have ended before
		if l.has(c.ID) {
			return []any{l.without(c.ID), l}
		}
		return []any{l}
	}
}

func main() {
	var calls []call
	if err := json.NewDecoder(os.Stdin).Decode(&calls); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	names := map[string][]porcupine.Operation{}
	for i, c := range calls {
		end := cmp.Or(c.Return, math.MaxInt64)
		names[c.Name] = append(names[c.Name], porcupine.Operation{ClientId: i, Input: c, Call: c.Call, Return: end})
	}
	model := porcupine.NondeterministicModel{Init: func() []any { return []any{lock{}} }, Step: step}
	failed := false
	for _, name := range slices.Sorted(maps.Keys(names)) {
		result := porcupine.CheckOperationsTimeout(model.ToModel(), names[name], 60*time.Second)
		fmt.Printf("%s: %d calls, %s\n", name, len(names[name]), result)
		failed = failed || result != porcupine.Ok
	}
	if failed {
		os.Exit(1)
	}
}
