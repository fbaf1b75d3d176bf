package cluster

import (
	"os"
	"slices"
	"testing"

	"github.com/posthouse/posthouse/test/internal/running"
)

// Four clusters at a time, of three instances each.
func TestMain(m *testing.M) { running.Main(m, 4) }

// engines are the databases that several processes can share: MySQL speaks the
// dialect of MariaDB.
var engines = slices.DeleteFunc(slices.Clone(running.Engines), func(e running.Engine) bool {
	return e.Name != "PostgreSQL" && e.Name != "MariaDB"
})

// scale picks the short form of a number, or the long one.
func scale(short, long int) int {
	if os.Getenv("POSTHOUSE_SOAK") == "1" {
		return long
	}
	return short
}
