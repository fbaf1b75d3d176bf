package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

func TestWriterCheck(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a store that is away":                      {failure(model.CodeUnavailable), true},
		"a store that fails for reasons of its own": {errors.New("no such table"), true},
		"a store that refuses what was pushed":      {failure(model.CodeRejected), false},
	} {
		t.Run("IN-25 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fail error
				keeper := &fakeKeeper{before: func(context.Context, []model.NewMessage) error { return fail }}
				w := startWriter(t, WriterConfig{Keeper: keeper})
				push := func() error { return keepAll(w, time.Second, message(1, "x"))[0] }
				check := func(when string, want bool) {
					t.Helper()
					if err := w.Check(); (err != nil) != want {
						t.Errorf("%s: %v, want an error: %v", when, err, want)
					}
				}
				check("at first", false)
				fail = test.err
				if push() == nil {
					t.Fatal("it was kept")
				}
				check("while it fails", test.want)
				fail = nil
				if err := push(); err != nil {
					t.Fatal(err)
				}
				check("after a success", false)
				fail = test.err
				_ = push()
				check("when it fails again", test.want)
				time.Sleep(failedFor)
				check("when nobody has pushed for long", false)
			})
		})
	}
}
