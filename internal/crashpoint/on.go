//go:build crashpoints

package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Enabled says whether this build can be made to crash.
const Enabled = true

var (
	wanted string
	left   atomic.Int64
)

func init() {
	name, count, _ := strings.Cut(os.Getenv("POSTHOUSE_CRASH"), ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	wanted = name
	left.Store(n)
}

// Hit kills the process at the n-th call with the wanted name.
func Hit(name string) {
	if name == wanted && left.Add(-1) == 0 {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // nothing after the kill may run
	}
}
