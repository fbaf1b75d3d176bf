package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were measured on.
type machine struct {
	CPU         string  `json:"cpu"`
	Cores       int     `json:"cores"`
	Kernel      string  `json:"kernel"`
	Go          string  `json:"go"`
	BusyBefore  float64 `json:"busy_before"`           // share of the processors that others used
	SyncsPerSec float64 `json:"fdatasyncs_per_second"` // of 4 KiB, one after the other
	InMemory    bool    `json:"folder_in_memory"`      // SQLite's file is on a file system without a disk
}

// look asks the machine. It writes into dir, where SQLite's file will be.
func look(dir string) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(info) {
		if key, value, _ := strings.Cut(string(line), ":"); strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	busy, total := processorTicks()
	time.Sleep(time.Second)
	if busyNow, totalNow := processorTicks(); totalNow > total {
		m.BusyBefore = (busyNow - busy) / (totalNow - total)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return m, fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	m.InMemory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	var err error
	m.SyncsPerSec, err = syncsPerSecond(filepath.Join(dir, "sync"))
	return m, err
}

// processorTicks is how long the processors were busy since the start, and how
// long they were there; zeros where that cannot be read.
func processorTicks() (busy, total float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			continue // the line's name
		}
		total += ticks
		if i != 4 && i != 5 { // idle, waiting for a disk
			busy += ticks
		}
	}
	return busy, total
}

// syncsPerSecond says how fast the disk is where it matters here.
func syncsPerSecond(path string) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { _ = f.Close() }() // nobody reads it
	page := make([]byte, 4096)
	began, n := time.Now(), 0
	for ; time.Since(began) < 500*time.Millisecond; n++ {
		if _, err := f.WriteAt(page, int64(n%1024)*int64(len(page))); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func (m machine) lines(engines []*engine) []string {
	versions := make([]string, len(engines))
	for i, e := range engines {
		versions[i] = e.title + " " + strings.Fields(strings.TrimPrefix(e.version, "PostgreSQL "))[0]
	}
	lines := []string{
		fmt.Sprintf("%s, %d cores, Linux %s, %s; %.0f fdatasyncs a second", m.CPU, m.Cores, m.Kernel, m.Go, m.SyncsPerSec),
		strings.Join(versions, ", "),
	}
	if m.InMemory {
		lines = append(lines, "SQLite's file would be in memory, where nothing is durable: set TMPDIR to a folder on a disk.")
	}
	if m.BusyBefore > 0.1 {
		lines = append(lines, fmt.Sprintf("This machine is busy with something else (%.0f %% of it): no figure is worth much.", 100*m.BusyBefore))
	}
	return lines
}

// processCPU is how much processor a process has used; 0 where it is not there.
func processCPU(pid int) time.Duration {
	const tick = 10 * time.Millisecond // what /proc counts in, wherever Linux runs
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name stands in parentheses, and may have any character in it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	s, _ := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * tick
}

// ownCPU is how much processor this process has used.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
