package delivery

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inFullOnly leaves a test to the full run: hours of a bubble's time take seconds,
// and minutes with the race detector, which sees no more in them than in minutes.
func inFullOnly(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it lasts for hours of fake time; the full run has it")
	}
}
