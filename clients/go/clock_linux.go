package lockelection

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// bootTime returns the time of CLOCK_BOOTTIME, which keeps running while the machine is suspended, as leases do.
func bootTime() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
