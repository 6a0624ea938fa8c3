package lockelection

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// bootTime reads CLOCK_BOOTTIME, which keeps running while the machine is suspended, like the leases.
func bootTime() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
