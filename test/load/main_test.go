package load

import (
	"os"
	"slices"
	"testing"

	"github.com/posthouse/posthouse/test/internal/running"
)

// All that may run at once does: what measures times does not run beside others.
func TestMain(m *testing.M) { running.Main(m, 8) }

// soak says whether the long form was asked for.
var soak = os.Getenv("POSTHOUSE_SOAK") == "1"

// scale picks the short form of a number, or the long one.
func scale[T any](short, long T) T {
	if soak {
		return long
	}
	return short
}

// engines are all but MySQL, which speaks the dialect of MariaDB.
var engines = slices.DeleteFunc(slices.Clone(running.Engines), func(e running.Engine) bool { return e.Name == "MySQL" })
