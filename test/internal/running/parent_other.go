//go:build !linux

package running

import "syscall"

// dieWithParent: elsewhere a child outlives a test's process that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
