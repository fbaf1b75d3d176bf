package running

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Main is the TestMain of a package whose tests run servers. Of parallel tests,
// so many run at a time, unless the command line says otherwise: they wait most
// of the time, for leases and locks to run out.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		setParallel(parallel)
	}
	os.Exit(run(m))
}

func setParallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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
