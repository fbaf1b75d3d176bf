package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
)

func compileKey(t testing.TB, source string) *expression.Key {
	t.Helper()
	k, err := expression.CompileKey(source)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keyed(id model.KeyID, key string) model.Agreed {
	return model.Agreed{Ordering: model.Ordering{Order: model.Keyed, Partitions: 16, Key: key, Block: true}, KeyID: id, Generation: int64(id)}
}

// at is what the door and a Placer say of the one message that was kept last.
func lastKey(t *testing.T, keeper *fakeKeeper) (model.Key, model.NewMessage) {
	t.Helper()
	all := keeper.all()
	if len(all) == 0 {
		t.Fatal("nothing was kept")
	}
	m := all[len(all)-1]
	return m.Key, m
}

func TestDoorPlacesByWhatIsAgreed(t *testing.T) {
	keeper := &fakeKeeper{}
	k := openDoor(t, keeper, DoorConfig{}, Source{Name: "a"}, Source{Name: "b"})
	var placer Placer
	push := func(body string, headers ...string) model.NewMessage {
		t.Helper()
		k.push("/in/a?q=1&token=secret", body, headers...).want(t, 200)
		_, m := lastKey(t, keeper)
		return m
	}
	if m := push(`{"id":1}`); m.Key != (model.Key{}) {
		t.Errorf("without an agreement: %+v", m.Key)
	}

	agreed := keyed(3, "body.id")
	k.door.SetAgreed(1, agreed)
	k.door.SetAgreed(99, agreed) // no such source
	one, alike, text := push(`{"id":1}`), push(`{"x":2,"id":1.0}`), push(`{"id":"1"}`)
	if one.Key != alike.Key || one.Key == text.Key || one.Key.Slot/model.Slots != 3 || one.Key.Hash == 0 {
		t.Errorf("1, 1.0 and \"1\" stand at %+v, %+v and %+v", one.Key, alike.Key, text.Key)
	}

	t.Run("a message without a key is kept, says why, and stands with its like", func(t *testing.T) {
		missing, other := push(`{"no":1}`), push(`not JSON`)
		if missing.Key != agreed.KeyOf(nil) || other.Key != missing.Key {
			t.Errorf("they stand at %+v and %+v", missing.Key, other.Key)
		}
		if missing.Check != "key: cannot be evaluated: body.id is missing" || other.Check != "key: cannot be evaluated: body is not JSON" {
			t.Errorf("%q, %q", missing.Check, other.Check)
		}
		k.wantCount(2, "requests_total", "source", "a", "result", "kept_unchecked")
	})
	t.Run("the source beside it is placed by its own agreement", func(t *testing.T) {
		k.push("/in/b", `{"id":1}`).want(t, 200)
		if key, _ := lastKey(t, keeper); key != (model.Key{}) {
			t.Errorf("it stands at %+v", key)
		}
	})
	t.Run("IN-22 a change holds from the next push on, and back", func(t *testing.T) {
		for _, a := range []model.Agreed{
			keyed(4, "body.id"), {},
			{Ordering: model.Ordering{Order: model.Serial, Partitions: 1, Block: true}, KeyID: 5},
			{Ordering: model.Ordering{Order: model.Keyed, Partitions: 32, Key: "body.id"}, KeyID: 6},
			agreed,
		} {
			k.door.SetAgreed(1, a)
			want := a.KeyOf([]byte("n\x011"))
			if got := push(`{"id":1}`).Key; got != want {
				t.Errorf("under %+v it stands at %+v, want %+v", a, got, want)
			}
		}
	})
	t.Run("a key that does not compile here is told once, and its messages are left for others to place", func(t *testing.T) {
		bad := keyed(7, "body.id ~ 1")
		for range 3 {
			k.door.SetAgreed(1, bad)
			if m := push(`{"id":1}`); m.Key != (model.Key{}) || m.Check != "" {
				t.Errorf("it stands at %+v, %q", m.Key, m.Check)
			}
		}
		if n := strings.Count(k.log.String(), "cannot be compiled here"); n != 1 {
			t.Errorf("told %d times:\n%s", n, k.log.String())
		}
		if _, err := placer.KeyOf(bad, &model.Message{}); err == nil {
			t.Error("a Placer says nothing of it")
		}
	})
	t.Run("IN-22 a Placer says the same as the door of whatever was kept", func(t *testing.T) {
		for i, key := range []string{
			"body.id", "body_hash", `headers["X-Customer"]`, `headers["Authorization"]`, `headers.Host`, `headers["Connection"]`, `headers["Content-Type"]`,
			"query.q", "query.token", "content_type", "size", `[body.id, query.q]`, `query["no"]`, `"X-Customer" in headers`,
		} {
			a := keyed(model.KeyID(10+i), key)
			k.door.SetAgreed(1, a)
			for _, body := range []string{`{"id":1}`, `{"id":"é"}`, `{"id":null}`, "x"} {
				m := push(body, "X-Customer: caf\xe9", "X-Customer: second", "Authorization: secret", "Content-Type: text/\xe9", "Connection: keep-alive, X-Customer2", "X-Customer2: 1")
				for range 2 {
					got, err := placer.KeyOf(a, &model.Message{NewMessage: m})
					if err != nil || got != m.Key {
						t.Errorf("%s of %s: the door says %+v, the Placer %+v %v", key, body, m.Key, got, err)
					}
				}
			}
		}
		for _, a := range []model.Agreed{{}, {Ordering: model.Ordering{Order: model.Serial, Block: true}, KeyID: 2}} {
			if got, err := placer.KeyOf(a, &model.Message{}); err != nil || got != a.KeyOf(nil) {
				t.Errorf("under %+v: %+v %v", a, got, err)
			}
		}
	})
	t.Run("a Placer remembers no more than its bound", func(t *testing.T) {
		for i := range maxKeyings + 10 {
			if _, err := placer.KeyOf(keyed(1, fmt.Sprintf("body.k%d", i)), &model.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(placer.keyings); n > maxKeyings {
			t.Errorf("it remembers %d", n)
		}
	})
}

func TestDoorDeduplicates(t *testing.T) {
	t.Run("IN-24 the second push of a key is acknowledged, counted, seen, and not kept", func(t *testing.T) {
		keeper := &fakeKeeper{}
		dedup := Dedup{Key: compileKey(t, "body.id"), Window: 9 * 24 * time.Hour}
		k := openDoor(t, keeper, DoorConfig{},
			Source{Name: "a", Dedup: dedup, Acknowledge: Acknowledge{Status: 202, Body: "thanks"}},
			Source{Name: "b", Dedup: Dedup{Key: dedup.Key}},
			Source{Name: "all"})
		for i, body := range []string{`{"id":1}`, `{"id":1.0,"again":true}`, `{"id":"1"}`} {
			a := k.push("/in/a", body)
			a.want(t, 202)
			if a.body != "thanks" {
				t.Errorf("push %d is answered %q", i, a.body)
			}
		}
		k.push("/in/b", `{"id":1}`).want(t, 200)
		k.push("/in/all", `{"id":1}`).want(t, 200)
		k.push("/in/all", `{"id":1}`).want(t, 200)
		want := []string{`{"id":1}`, `{"id":"1"}`, `{"id":1}`, `{"id":1}`, `{"id":1}`}
		if got := keeper.bodies(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("kept are %v, want %v", got, want)
		}
		all := keeper.all()
		if first := all[0].Dedup; first.Window != dedup.Window || first.Hash != sha256.Sum256([]byte("n\x011")) {
			t.Errorf("the first has %+v", first)
		}
		if all[2].Dedup.Window != 8*24*time.Hour || all[3].Dedup != (model.Dedup{}) {
			t.Errorf("b has %+v, all has %+v", all[2].Dedup, all[3].Dedup)
		}
		k.wantCount(2, "requests_total", "source", "a", "result", "kept")
		k.wantCount(1, "requests_total", "source", "a", "result", "duplicate")
		rejects := k.door.Rejects("a")
		if len(rejects) != 1 || rejects[0].Kind != RejectNotKept || rejects[0].Cause != "duplicate" || rejects[0].Status != 202 || rejects[0].Sample != `{"id":1.0,"again":true}` {
			t.Errorf("seen is %+v", rejects)
		}
	})
	t.Run("IN-24 a push without a key is kept each time, and says why", func(t *testing.T) {
		keeper := &fakeKeeper{}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "a", Accept: compile(t, "body.x == 1"), Dedup: Dedup{Key: compileKey(t, "body.id")}})
		k.door.SetAgreed(1, keyed(1, "body.customer"))
		for range 2 {
			k.push("/in/a", `{"id":""}`).want(t, 200)
		}
		all := keeper.all()
		if len(all) != 2 {
			t.Fatalf("%d are kept", len(all))
		}
		const want = "cannot be evaluated: body.x is missing; dedup: cannot be evaluated: body.id is empty, used as a key; key: cannot be evaluated: body.customer is missing"
		if all[1].Check != want || all[1].Dedup != (model.Dedup{}) {
			t.Errorf("%q, %+v", all[1].Check, all[1].Dedup)
		}
		k.wantCount(2, "requests_total", "source", "a", "result", "kept_unchecked")
	})
	t.Run("IN-24 the key sees the push as it came, credentials included", func(t *testing.T) {
		keeper := &fakeKeeper{}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "a", Dedup: Dedup{Key: compileKey(t, `headers["X-Event-Key"]`)}})
		for _, key := range []string{"one", "two", "one"} {
			k.push("/in/a", key, "X-Event-Key: "+key).want(t, 200)
		}
		if got := keeper.bodies(); fmt.Sprint(got) != "[one two]" {
			t.Errorf("kept are %v", got)
		}
	})
	t.Run("IN-24 by the body: what differs in one byte is another", func(t *testing.T) {
		keeper := &fakeKeeper{}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "a", Dedup: Dedup{Key: compileKey(t, `body_hash`)}})
		for _, body := range []string{`{"a":1}`, `{"a": 1}`, `{"a":1}`, "\xff", "\xfe", "\xff"} {
			k.push("/in/a", body).want(t, 200)
		}
		if n := len(keeper.all()); n != 4 {
			t.Errorf("%d are kept, want 4", n)
		}
	})
}

func duplicable(source model.SourceID, key, body string) model.NewMessage {
	m := message(source, body)
	m.Dedup = model.Dedup{Hash: sha256.Sum256([]byte(key)), Window: time.Hour}
	return m
}

func TestWriterTellsDuplicates(t *testing.T) {
	t.Run("IN-24 three copies within one flush with 61 others make 62 rows, all are answered, and the hook hears of what is new", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			keeper := &fakeKeeper{before: g.before}
			told := map[model.SourceID]int{}
			w := startWriter(t, WriterConfig{Keeper: keeper, OnKept: func(source model.SourceID, n int) { told[source] += n }})
			go keepAll(w, time.Minute, message(9, "first"))
			<-g.arrived
			errs := make(chan []error)
			var batch []model.NewMessage
			for i := range 61 {
				batch = append(batch, duplicable(1, fmt.Sprint(i), "x"))
			}
			for range 3 {
				batch = append(batch, duplicable(1, "the same", "x"))
			}
			go func() { errs <- keepAll(w, time.Minute, batch...) }()
			synctest.Wait()
			g.pass <- nil
			if n := <-g.arrived; n != 64 {
				t.Fatalf("a flush of %d", n)
			}
			g.pass <- nil
			nils, duplicates := countErrors(t, <-errs)
			if nils != 62 || duplicates != 2 || len(keeper.all()) != 63 {
				t.Errorf("%d kept, %d duplicates; %d rows", nils, duplicates, len(keeper.all()))
			}
			go func() { errs <- keepAll(w, time.Minute, duplicable(2, "x", "x"), duplicable(1, "the same", "x")) }()
			n := <-g.arrived
			g.pass <- nil
			if n == 1 { // one by one
				<-g.arrived
				g.pass <- nil
			}
			countErrors(t, <-errs)
			synctest.Wait()
			if told[1] != 62 || told[2] != 1 {
				t.Errorf("the hook heard of %v", told)
			}
		})
	})
	t.Run("IN-24 duplicates alone wake nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			w := startWriter(t, WriterConfig{Keeper: &fakeKeeper{}, OnKept: func(model.SourceID, int) { calls++ }})
			for range 3 {
				keepAll(w, time.Minute, duplicable(1, "k", "x"))
			}
			synctest.Wait()
			if calls != 1 {
				t.Errorf("the hook was called %d times", calls)
			}
		})
	})
	t.Run("IN-24 a commit of which nothing was heard is no duplicate of itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			first := true
			keeper := &fakeKeeper{}
			keeper.after = func([]model.NewMessage) error {
				if first {
					first = false
					return failure(model.CodeUnavailable)
				}
				return nil
			}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			if err := keepAll(w, time.Minute, duplicable(1, "k", "x"))[0]; err != nil {
				t.Error(err)
			}
			if err := keepAll(w, time.Minute, duplicable(1, "k", "x"))[0]; !errors.Is(err, ErrDuplicate) {
				t.Error(err)
			}
			if n := len(keeper.all()); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	})
	t.Run("IN-24 a bad row among duplicates is found, and the others are answered as they are", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			gated := true
			keeper := &fakeKeeper{}
			keeper.before = func(ctx context.Context, messages []model.NewMessage) error {
				if gated {
					return g.before(ctx, messages)
				}
				for _, m := range messages {
					if string(m.Body) == "bad" {
						return failure(model.CodeRejected)
					}
				}
				return nil
			}
			w := startWriter(t, WriterConfig{Keeper: keeper})
			go keepAll(w, time.Minute, message(9, "first"))
			<-g.arrived
			errs := make(chan []error)
			var batch []model.NewMessage
			for i := range 20 {
				batch = append(batch, duplicable(1, fmt.Sprint(i%5), "x"))
			}
			batch = append(batch, duplicable(1, "0", "bad"))
			go func() { errs <- keepAll(w, time.Minute, batch...) }()
			synctest.Wait()
			gated = false
			g.pass <- nil
			nils, duplicates, refused := 0, 0, 0
			for _, err := range <-errs {
				switch {
				case err == nil:
					nils++
				case errors.Is(err, ErrDuplicate):
					duplicates++
				case model.CodeOf(err) == model.CodeRejected:
					refused++
				}
			}
			if nils != 5 || duplicates != 15 || refused != 1 {
				t.Errorf("%d kept, %d duplicates, %d refused", nils, duplicates, refused)
			}
		})
	})
	t.Run("a keeper that names places which are not there is at fault, and stops nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := &oddKeeper{}
			w := startWriter(t, WriterConfig{Keeper: k})
			if err := keepAll(w, time.Minute, message(1, "x"))[0]; err == nil {
				t.Error("no error")
			}
			k.well = true
			if err := keepAll(w, time.Minute, message(1, "x"))[0]; err != nil {
				t.Error(err)
			}
		})
	})
}

type oddKeeper struct{ well bool }

func (k *oddKeeper) PutMessages(context.Context, model.Put, []model.NewMessage) ([]int, error) {
	if k.well {
		return nil, nil
	}
	return []int{7}, nil
}

func countErrors(t *testing.T, errs []error) (nils, duplicates int) {
	t.Helper()
	for _, err := range errs {
		switch {
		case err == nil:
			nils++
		case errors.Is(err, ErrDuplicate):
			duplicates++
		default:
			t.Error(err)
		}
	}
	return nils, duplicates
}
