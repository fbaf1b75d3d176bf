package notify

import (
	"testing"
	"time"
)

// What accepting costs beside the store: checking, choosing, rendering, sealing.
func BenchmarkCompose(b *testing.B) {
	k := newKit(b, nil)
	s := submission()
	b.ReportAllocs()
	for b.Loop() {
		var p problems
		k.compose(k.check(s, &p), time.Now(), &p)
		if len(p) > 0 {
			b.Fatal(p)
		}
	}
}
