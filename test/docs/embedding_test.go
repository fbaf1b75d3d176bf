package docs

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/inbox"
)

// What docs/embedding.md shows beside the whole program, so that it compiles.

func shop(handle inbox.HandlerFunc) inbox.Source {
	return inbox.Source{
		Name:   "shop",
		Verify: inbox.NoVerification(),
		// Of pushes with one id only the first is kept, for 8 days.
		Dedup:   inbox.Dedup{Key: "body.id", Window: 8 * 24 * time.Hour},
		Handler: handle,
		Consume: inbox.Consume{
			Order:      inbox.Keyed,
			Key:        "body.customerId", // in order for each customer
			Partitions: 16,                // keys at once, over all processes
			Block:      true,              // a retry holds up its own customer, and nobody else
		},
	}
}

func TestDocumentedSourceIsSound(t *testing.T) {
	file, err := os.ReadFile("embedding_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, source, _ := strings.Cut(string(file), "\nfunc shop(")
	source, _, _ = strings.Cut("func shop("+source, "\n}\n")
	if !strings.Contains(read(t, "docs", "embedding.md"), "```go\n"+source+"\n}\n```\n") {
		t.Errorf("docs/embedding.md must show this:\n%s\n}", source)
	}
	s := shop(func(context.Context, *inbox.Message) error { return nil })
	for _, key := range []string{s.Dedup.Key, s.Consume.Key} {
		if err := compileKey(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
