package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func TestWriterKeepsByGroups(t *testing.T) {
	t.Run("IN-01 what comes during a commit goes into the next one, all of it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			keeper := &fakeKeeper{before: g.before}
			var told sync.Map
			w := startWriter(t, WriterConfig{Keeper: keeper, OnKept: func(source model.SourceID, n int) {
				v, _ := told.LoadOrStore(source, new(atomic.Int64))
				v.(*atomic.Int64).Add(int64(n)<<8 + 1) // messages, and calls
			}})
			var answered atomic.Int64
			keep := func(source model.SourceID) {
				go func() {
					if err := w.Keep(context.Background(), message(source, "x")); err != nil {
						t.Errorf("Keep: %v", err)
					}
					answered.Add(1)
				}()
			}
			keep(1)
			if n := <-g.arrived; n != 1 {
				t.Fatalf("the first batch has %d, want 1", n)
			}
			for range 40 {
				keep(1)
				keep(2)
			}
			synctest.Wait()
			if n := answered.Load(); n != 0 {
				t.Fatalf("%d were answered before the commit", n)
			}
			g.pass <- nil
			if n := <-g.arrived; n != 80 {
				t.Errorf("the second batch has %d, want all 80 that waited", n)
			}
			synctest.Wait()
			if n := answered.Load(); n != 1 {
				t.Errorf("%d were answered after the first commit, want 1", n)
			}
			g.pass <- nil
			synctest.Wait()
			if n := answered.Load(); n != 81 {
				t.Errorf("%d were answered, want 81", n)
			}
			for source, want := range map[model.SourceID]int64{1: 41<<8 + 2, 2: 40<<8 + 1} {
				v, _ := told.Load(source)
				if got := v.(*atomic.Int64).Load(); got != want {
					t.Errorf("OnKept heard of %d messages of source %d in %d calls, want %d in %d", got>>8, source, got&0xff, want>>8, want&0xff)
				}
			}
		})
	})
	t.Run("a batch holds at most 512 rows and 4 MiB, and a larger row goes alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			keeper := &fakeKeeper{before: g.before}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			go keepAll(w, time.Minute, message(1, "first"))
			<-g.arrived
			var waiting []model.NewMessage
			for range 600 {
				waiting = append(waiting, message(1, "small"))
			}
			go keepAll(w, time.Minute, waiting...)
			synctest.Wait()
			g.pass <- nil
			if n := <-g.arrived; n != 512 {
				t.Errorf("a batch has %d rows, want 512", n)
			}
			g.pass <- nil
			if n := <-g.arrived; n != 88 {
				t.Errorf("the rest has %d rows, want 88", n)
			}
			large := strings.Repeat("x", 1<<20)
			go keepAll(w, time.Minute, message(2, large), message(3, large), message(4, large), message(5, large), message(6, strings.Repeat("y", 5<<20)))
			synctest.Wait()
			g.pass <- nil
			var sizes []int
			for range 3 {
				sizes = append(sizes, <-g.arrived)
				g.pass <- nil
			}
			slices.Sort(sizes)
			if diff := cmp.Diff([]int{1, 1, 3}, sizes); diff != "" {
				t.Errorf("four rows of 1 MiB and one of 5 MiB (-want +got)\n%s", diff)
			}
		})
	})
	t.Run("IN-16 a full queue refuses those who hold most of it, and still takes others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			w := startWriter(t, WriterConfig{Keeper: &fakeKeeper{before: g.before}, QueueRows: 20})
			go keepAll(w, time.Minute, message(1, "x"))
			<-g.arrived
			var busy, kept atomic.Int64
			for range 30 {
				go func() {
					switch err := w.Keep(context.Background(), message(1, "x")); {
					case err == nil:
						kept.Add(1)
					case errors.Is(err, ErrBusy):
						busy.Add(1)
					default:
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			if n := busy.Load(); n != 20 {
				t.Errorf("%d of 30 rows of one source were refused, want 20: it may hold half of the queue", n)
			}
			go keepAll(w, time.Minute, message(2, "neighbour"))
			synctest.Wait()
			g.pass <- nil
			if n := <-g.arrived; n != 11 {
				t.Errorf("the next batch has %d rows, want 10 and the neighbour", n)
			}
			g.pass <- nil
			synctest.Wait()
			if n := kept.Load(); n != 10 {
				t.Errorf("%d were kept, want 10", n)
			}
		})
	})
}

func TestWriterFindsTheBadRow(t *testing.T) {
	bad := func(code model.Code) func(context.Context, []model.NewMessage) error {
		return func(_ context.Context, messages []model.NewMessage) error {
			for _, m := range messages {
				if strings.HasPrefix(string(m.Body), "bad") {
					return failure(code)
				}
			}
			return nil
		}
	}
	for _, code := range []model.Code{model.CodeRejected, model.CodeInternal} {
		t.Run("IN-25 one bad row fails alone, its neighbours are kept: "+string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keeper := &fakeKeeper{before: bad(code)}
				w, err := NewWriter(WriterConfig{Keeper: keeper})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				var messages []model.NewMessage
				for i := range 64 {
					body := fmt.Sprintf("good %d", i)
					if i == 0 || i == 40 {
						body = "bad"
					}
					messages = append(messages, message(model.SourceID(i%3), body))
				}
				go func() {
					synctest.Wait() // until all wait
					w.Start()
				}()
				for i, err := range keepAll(w, time.Second, messages...) {
					if want := string(messages[i].Body) != "bad"; (err == nil) != want {
						t.Errorf("row %d: %v", i, err)
					}
				}
				if n := len(keeper.all()); n != 62 {
					t.Errorf("%d rows were kept, want 62", n)
				}
				if n := len(keeper.sizes()); n > 25 {
					t.Errorf("it took %d calls, want no more than bisecting takes", n)
				}
			})
		})
	}
	t.Run("a fault that is nobody's ends after a few calls, not after one for each row", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keeper := &fakeKeeper{before: func(context.Context, []model.NewMessage) error { return errors.New("no such table") }}
			var log lines
			w, err := NewWriter(WriterConfig{Keeper: keeper, Log: log.logger()})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			var messages []model.NewMessage
			for range 512 {
				messages = append(messages, message(1, "x"))
			}
			go func() {
				synctest.Wait()
				w.Start()
			}()
			for _, err := range keepAll(w, time.Second, messages...) {
				if err == nil || errors.Is(err, ErrUnavailable) {
					t.Fatalf("answered %v, want the store's error", err)
				}
			}
			if n := len(keeper.sizes()); n > 100 {
				t.Errorf("it took %d calls", n)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("%d lines were logged, want 1:\n%s", n, log.String())
			}
			if strings.Contains(log.String(), "no such table") {
				t.Errorf("the text of a foreign error was logged:\n%s", log.String())
			}
		})
	})
	t.Run("a panic of the store fails its row and nothing else", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keeper := &fakeKeeper{before: func(_ context.Context, messages []model.NewMessage) error {
				for _, m := range messages {
					if string(m.Body) == "bad" {
						panic("at the disco")
					}
				}
				return nil
			}}
			w := startWriter(t, WriterConfig{Keeper: keeper, OnKept: func(model.SourceID, int) { panic("in the hook") }})
			errs := keepAll(w, time.Second, message(1, "a"), message(1, "bad"), message(1, "b"))
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Errorf("answered %v", errs)
			}
		})
	})
}

func TestWriterOutage(t *testing.T) {
	t.Run("AC-9 as long as somebody waits it tries again with the same ids, and keeps each once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keeper := &fakeKeeper{}
			calls := 0
			keeper.after = func([]model.NewMessage) error {
				if calls++; calls <= 4 {
					return failure(model.CodeUnavailable) // committed, and nobody knows
				}
				return nil
			}
			var log lines
			w := startWriter(t, WriterConfig{Keeper: keeper, Log: log.logger()})
			messages := []model.NewMessage{message(1, "a"), message(1, "b"), message(2, "c")}
			for i, err := range keepAll(w, 2*time.Second, messages...) {
				if err != nil {
					t.Errorf("row %d: %v", i, err)
				}
			}
			bodies := keeper.bodies()
			slices.Sort(bodies)
			if diff := cmp.Diff([]string{"a", "b", "c"}, bodies); diff != "" {
				t.Errorf("kept (-want +got)\n%s", diff)
			}
			text := log.String()
			if strings.Count(text, "unavailable") != 1 || strings.Count(text, "available again") != 1 || strings.Count(text, "\n") != 2 {
				t.Errorf("want one line when it begins and one when it is over:\n%s", text)
			}
		})
	})
	t.Run("AC-9 the store hangs for 10 s: all are answered in time, nothing is inserted later, and it recovers by itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			keeper := &fakeKeeper{}
			keeper.before = func(ctx context.Context, _ []model.NewMessage) error {
				if left := 10*time.Second - time.Since(begin); left > 0 {
					select {
					case <-time.After(left):
					case <-ctx.Done():
						return failure(model.CodeUnavailable)
					}
				}
				return nil
			}
			var log lines
			w := startWriter(t, WriterConfig{Keeper: keeper, Log: log.logger()})
			var group sync.WaitGroup
			for i := range 150 { // one each 100 ms, for 15 s
				group.Go(func() {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					sent := time.Since(begin)
					err := keepAll(w, 2*time.Second, message(1, fmt.Sprint(i)))[0]
					if took := time.Since(begin) - sent; took > 2*time.Second {
						t.Errorf("push %d was answered after %s", i, took)
					}
					switch recovered := 10 * time.Second; {
					case sent < recovered-2*time.Second && err == nil:
						t.Errorf("push %d was kept while the store hung", i)
					case sent > recovered-1900*time.Millisecond && err != nil:
						t.Errorf("push %d, sent after %s: %v", i, sent, err)
					}
				})
			}
			group.Wait()
			for _, body := range keeper.bodies() {
				var i int
				if _, err := fmt.Sscan(body, &i); err != nil || i < 80 {
					t.Errorf("push %s was inserted long after it was answered 503", body)
				}
			}
			if n := strings.Count(log.String(), "\n"); n > 3 {
				t.Errorf("%d lines were logged:\n%s", n, log.String())
			}
		})
	})
	t.Run("IN-02 a row whose time is up before its turn is not inserted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			keeper := &fakeKeeper{before: g.before}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			go keepAll(w, time.Minute, message(1, "first"))
			<-g.arrived
			if err := keepAll(w, time.Second, message(1, "late"))[0]; !errors.Is(err, ErrLate) {
				t.Errorf("answered %v, want ErrLate", err)
			}
			hungUp, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- w.Keep(hungUp, message(1, "hung up")) }()
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, ErrHungUp) {
				t.Errorf("answered %v, want ErrHungUp", err)
			}
			go keepAll(w, time.Minute, message(1, "last"))
			synctest.Wait()
			g.pass <- nil
			<-g.arrived
			g.pass <- nil
			synctest.Wait()
			if diff := cmp.Diff([]string{"first", "last"}, keeper.bodies()); diff != "" {
				t.Errorf("kept (-want +got)\n%s", diff)
			}
		})
	})
	t.Run("IN-02 a row whose time is up while the store is at work is unknown, and its store call ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			begin := time.Now()
			keeper := &fakeKeeper{before: func(ctx context.Context, _ []model.NewMessage) error {
				<-ctx.Done()
				ended = time.Since(begin)
				return ctx.Err()
			}}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			if err := keepAll(w, time.Second, message(1, "x"))[0]; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable) {
				t.Errorf("answered %v", err)
			}
			synctest.Wait()
			if ended != time.Second {
				t.Errorf("the store's call ended after %s, want when nobody waits any longer", ended)
			}
			if n := len(keeper.sizes()); n != 1 {
				t.Errorf("there were %d calls for nobody", n-1)
			}
		})
	})
	t.Run("each call is bounded, however long somebody waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			keeper := &fakeKeeper{before: func(ctx context.Context, _ []model.NewMessage) error {
				if calls++; calls == 1 {
					<-ctx.Done()
					return failure(model.CodeUnavailable)
				}
				return nil
			}}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			begin := time.Now()
			if err := keepAll(w, time.Minute, message(1, "x"))[0]; err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took != 5050*time.Millisecond {
				t.Errorf("kept after %s, want the call's 5 s and a pause of 50 ms", took)
			}
		})
	})
	t.Run("IN-25 one row that the store cannot bear soon stands alone, and does not take its neighbours down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keeper := &fakeKeeper{before: func(_ context.Context, messages []model.NewMessage) error {
				for _, m := range messages {
					if string(m.Body) == "bad" { // say, larger than the server's packet: the connection breaks
						return failure(model.CodeUnavailable)
					}
				}
				return nil
			}}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			var messages []model.NewMessage
			for i := range 64 {
				messages = append(messages, message(1, fmt.Sprint(i)))
			}
			messages[7].Body = []byte("bad")
			for i, err := range keepAll(w, 2*time.Second, messages...) {
				if (err != nil) != (i == 7) {
					t.Errorf("row %d: %v", i, err)
				}
			}
		})
	})
}

func TestWriterStop(t *testing.T) {
	t.Run("it keeps what waits, answers everything, and takes no more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			keeper := &fakeKeeper{before: g.before}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			w.Start()
			results := make(chan []error)
			go func() { results <- keepAll(w, time.Minute, message(1, "taken")) }()
			<-g.arrived
			go func() { results <- keepAll(w, time.Minute, message(1, "waiting"), message(2, "waiting")) }()
			synctest.Wait()
			var stops sync.WaitGroup
			for range 3 {
				stops.Go(w.Stop)
			}
			synctest.Wait()
			if err := w.Keep(context.Background(), message(1, "too late")); !errors.Is(err, ErrStopped) {
				t.Errorf("answered %v, want ErrStopped", err)
			}
			g.pass <- nil
			<-g.arrived
			g.pass <- nil
			for range 2 {
				for _, err := range <-results {
					if err != nil {
						t.Error(err)
					}
				}
			}
			stops.Wait()
			w.Start() // a stopped one stays stopped
			w.Stop()
		})
	})
	t.Run("with the store down it does not try for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			w := startWriter(t, WriterConfig{Keeper: &fakeKeeper{before: g.before}})
			results := make(chan []error)
			go func() {
				results <- keepAll(w, time.Minute, message(1, "taken"), message(1, "waiting"), message(1, "waiting"))
			}()
			<-g.arrived
			synctest.Wait()
			go w.Stop()
			synctest.Wait()
			begin := time.Now()
			go func() {
				for {
					select {
					case g.pass <- failure(model.CodeUnavailable):
					case <-g.arrived:
					case <-w.stopped:
						return
					}
				}
			}()
			for _, err := range <-results {
				if !errors.Is(err, ErrUnavailable) {
					t.Errorf("answered %v, want ErrUnavailable", err)
				}
			}
			w.Stop()
			if took := time.Since(begin); took > time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
	t.Run("one that was never started answers those who wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keeper := &fakeKeeper{}
			w, err := NewWriter(WriterConfig{Keeper: keeper})
			if err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() { result <- w.Keep(context.Background(), message(1, "x")) }()
			synctest.Wait()
			w.Stop()
			if err := <-result; err != nil || len(keeper.all()) != 1 {
				t.Errorf("answered %v, %d kept", err, len(keeper.all()))
			}
		})
	})
	t.Run("starting, stopping and keeping at random", func(t *testing.T) {
		for range 50 {
			keeper := &fakeKeeper{}
			w, err := NewWriter(WriterConfig{Keeper: keeper})
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			var kept atomic.Int64
			for i := range 20 {
				group.Go(func() {
					switch err := w.Keep(context.Background(), message(model.SourceID(i%3), "x")); {
					case err == nil:
						kept.Add(1)
					case !errors.Is(err, ErrStopped):
						t.Error(err)
					}
				})
			}
			for range 3 {
				group.Go(w.Start)
				group.Go(w.Stop)
			}
			group.Wait()
			if int(kept.Load()) != len(keeper.all()) {
				t.Errorf("%d were told that they are kept, %d are", kept.Load(), len(keeper.all()))
			}
		}
	})
}
