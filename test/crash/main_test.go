package crash

import (
	"testing"

	"github.com/posthouse/posthouse/test/internal/running"
)

func TestMain(m *testing.M) { running.Main(m, 16) }

// inEachOrder does the same for each order on every database.
func inEachOrder(t *testing.T, ids string, test func(t *testing.T, e running.Engine, order string)) {
	t.Helper()
	running.OnEachEngine(t, ids, running.Engines, func(t *testing.T, e running.Engine) {
		for _, order := range []string{"serial", "parallel"} {
			t.Run(order, func(t *testing.T) {
				t.Parallel()
				test(t, e, order)
			})
		}
	})
}
