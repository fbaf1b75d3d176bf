package model

import (
	"strings"
	"unicode/utf8"
)

// Reason is why an attempt did not succeed: it drives the retry, is the label
// of a metric, and is the word that an operator reads. The set is closed.
type Reason string

const (
	ReasonNone       Reason = ""            // it succeeded
	ReasonError      Reason = "error"       // the handler returned an error
	ReasonPanic      Reason = "panic"       // the handler panicked
	ReasonTimeout    Reason = "timeout"     // the handler ran into its timeout
	ReasonHTTPStatus Reason = "http_status" // the target answered, but not 2xx
	ReasonConnect    Reason = "connect"     // the target could not be reached, or broke off
	ReasonForbidden  Reason = "forbidden"   // the target's address is not allowed
	ReasonPermanent  Reason = "permanent"   // the handler says that no retry can help
	ReasonWorkerLost Reason = "worker_lost" // the process died, or was cut off, while it ran
	ReasonOrphaned   Reason = "orphaned"    // the handler outlived orphan_after

	// ReasonTransient and the three below are of deliveries: how the provider's answer was classed.
	ReasonTransient   Reason = Reason(ClassTransient)
	ReasonRateLimited Reason = Reason(ClassRateLimited)
	ReasonAuth        Reason = Reason(ClassAuth)
	ReasonUncertain   Reason = Reason(ClassUncertain)
)

// Reasons lists every reason that an attempt can carry.
func Reasons() []Reason {
	return []Reason{ReasonError, ReasonPanic, ReasonTimeout, ReasonHTTPStatus, ReasonConnect,
		ReasonForbidden, ReasonPermanent, ReasonWorkerLost, ReasonOrphaned,
		ReasonTransient, ReasonRateLimited, ReasonAuth, ReasonUncertain}
}

// MaxErrorRunes bounds an error text that is kept, in characters.
const MaxErrorRunes = 500

// CleanError makes any text fit to be kept in any database: valid UTF-8
// without NUL, at most MaxErrorRunes characters, never cut inside one. It looks
// at no more of the text than it keeps.
func CleanError(text string) string {
	if len(text) > MaxErrorRunes*utf8.UTFMax {
		text = text[:MaxErrorRunes*utf8.UTFMax]
	}
	var b strings.Builder
	runes := 0
	for _, r := range text {
		if runes == MaxErrorRunes {
			break
		}
		if r == 0 {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		runes++
	}
	return b.String()
}
