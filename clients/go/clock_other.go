//go:build !linux

package lockelection

import "time"

var clockStart = time.Now()

// bootTime is the larger of what the monotonic clock and the time of day have advanced: only the second goes on while
// the machine is suspended. A time of day that is set forward loses early, which is safe.
func bootTime() time.Duration {
	now := time.Now()
	return max(now.Sub(clockStart), now.Round(0).Sub(clockStart.Round(0)))
}
