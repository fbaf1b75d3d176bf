package running

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main is the TestMain of a package whose tests run servers.
func Main(m *testing.M) {
	flag.Parse()
	// These tests wait most of the time, for leases and locks to run out.
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "posthouse-running-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary folder
	buildDir = dir
	return m.Run()
}
