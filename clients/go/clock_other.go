//go:build !linux

package lockelection

import "time"

var clockStart = time.Now()

// bootTime returns the time since the start by the monotonic clock or the wall clock, whichever is later, because only
// the wall clock runs while the machine is suspended. If the wall clock is set forward, locks are lost early, which is
// safe.
func bootTime() time.Duration {
	now := time.Now()
	return max(now.Sub(clockStart), now.Round(0).Sub(clockStart.Round(0)))
}
