package running

import "syscall"

// dieWithParent has the kernel kill the child when the test's process is gone,
// however that ended.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
