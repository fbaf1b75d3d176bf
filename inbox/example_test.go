package inbox_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/sqlite"
)

func Example() {
	ctx, got := context.Background(), make(chan string)
	dir := must(os.MkdirTemp("", "inbox"))
	defer func() { _ = os.RemoveAll(dir) }()
	store := must(sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "inbox.db")}))
	defer func() { _ = store.Close() }()
	must(0, store.Migrate(ctx))
	box := must(inbox.Open(ctx, inbox.Config{Store: store, Sources: []inbox.Source{{
		Name: "orders", Verify: inbox.NoVerification(),
		Handler: inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) error {
			got <- fmt.Sprintf("attempt %d at %s from %s", m.Attempt, m.Body, m.Source)
			return nil // handled; an error would have it tried again
		}),
	}}}))
	must(0, box.Start(ctx))
	defer box.Stop()
	server := httptest.NewServer(box) // a service has its own, say inbox.Server(mux)
	defer server.Close()
	answer := must(http.Post(server.URL+"/in/orders", "application/json", strings.NewReader(`{"order":7}`)))
	_ = answer.Body.Close()
	fmt.Println(answer.Status, "- the push is on disk;", <-got)
	// Output: 200 OK - the push is on disk; attempt 1 at {"order":7} from orders
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
