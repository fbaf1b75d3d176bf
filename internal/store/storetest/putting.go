package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func putting(k *kit) {
	k.run("IN-25 every byte comes out as it went in", bytesAreExact)
	k.run("IN-25 64 odd neighbours in one batch", oddNeighbours)
	k.run("IN-09 seq follows the order given and received_at is one reading", orderOfABatch)
	k.run("IN-01 a put that is repeated keeps each message once", repeatedPut)
	k.run("IN-01 a put that is repeated after the message succeeded makes no new work", repeatedAfterSuccess)
	k.run("IN-01 identical puts at once keep each message once", concurrentPuts)
	k.run("IN-01 one id twice in a batch is kept once", twiceInABatch)
	k.run("IN-04 an import is success and is never executed", importing)
	k.run("IN-25 a row at fault is rejected with its whole batch, and alone", rejectedRow)
	k.run("nothing at all is kept without an error", func(k *kit) {
		k.keep(model.PutPending, nil)
	})
}

// odd are bodies that stores are known to mangle.
func odd() map[string][]byte {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return map[string][]byte{
		"NUL":                   []byte("{\"a\":\"\x00\"}\x00"),
		"invalid UTF-8":         []byte("{\"a\":\"\xff\xfe\xc3\x28\"}"),
		"a lone surrogate":      []byte(`{"a":"\ud800"}`),
		"a lone surrogate, raw": []byte("{\"a\":\"\xed\xa0\x80\"}"),
		"beyond 2^53":           []byte(`{"a":9007199254740993}`),
		"an empty object":       []byte(`{}`),
		"nothing":               {},
		"every byte":            every,
		"quotes and escapes":    []byte(`'"\'; DROP TABLE x; -- %s ? $1 :a @b`),
		"trailing white space":  []byte("a \t\r\n\n  "),
		"four-byte runes":       []byte("😀𝕏"),
		"1 MiB":                 bytes.Repeat([]byte("\x00\xffposthouse'\\\n🏤"), 1<<20/17),
	}
}

// sameMessage compares without telling a nil slice from an empty one.
// What stands with the work, or apart, is not compared.
func sameMessage(want, got model.NewMessage) string {
	want.Key, got.Key, want.Dedup, got.Dedup = model.Key{}, model.Key{}, model.Dedup{}, model.Dedup{}
	return cmp.Diff(want, got, sameBytes)
}

var sameBytes = cmp.Comparer(bytes.Equal)

func bytesAreExact(k *kit) {
	source, owner := k.source(), k.instance()
	for name, body := range odd() {
		k.run(name, func(k *kit) {
			want := newMessage(source, "")
			want.Body = body
			want.Query = body[:min(len(body), 2000)]
			want.Headers = append([]byte("X-Odd: "), body[:min(len(body), 2000)]...)
			want.ContentType = "text/plain; note=\"ü\""
			want.Check = "cannot evaluate"
			k.keep(model.PutPending, []model.NewMessage{want})
			got, err := k.Body(k.ctx(), want.ID)
			k.must(err)
			if diff := sameMessage(want, got.NewMessage); diff != "" {
				k.Errorf("by id: %s", diff)
			}
			work := k.claimStarted(source, owner, 1)
			if len(work) != 1 {
				k.Fatalf("claimed %d", len(work))
			}
			if diff := sameMessage(want, work[0].Message.NewMessage); diff != "" {
				k.Errorf("as work: %s", diff)
			}
			if diff := cmp.Diff(got, *work[0].Message, sameBytes); diff != "" {
				k.Errorf("by id and as work: %s", diff)
			}
			view, _ := k.view(want.ID)
			if view.Size != int64(len(body)) || view.ContentType != want.ContentType || view.Check != want.Check {
				k.Errorf("shown as %+v", view)
			}
		})
	}
}

func oddNeighbours(k *kit) {
	source := k.source()
	var messages []model.NewMessage
	for len(messages) < 64 {
		for name, body := range odd() {
			if name == "1 MiB" {
				continue
			}
			m := newMessage(source, "")
			m.Body = body
			messages = append(messages, m)
		}
	}
	messages = messages[:64]
	k.keep(model.PutPending, messages)
	for _, want := range messages {
		got, err := k.Body(k.ctx(), want.ID)
		k.must(err)
		if diff := sameMessage(want, got.NewMessage); diff != "" {
			k.Error(diff)
		}
	}
}

func orderOfABatch(k *kit) {
	source := k.source()
	first, second := k.put(source, 50), k.put(source, 50)
	var last model.Message
	for i, m := range append(first, second...) {
		got, err := k.Body(k.ctx(), m.ID)
		k.must(err)
		if got.Seq <= last.Seq {
			k.Errorf("message %d has seq %d after %d", i, got.Seq, last.Seq)
		}
		if got.ReceivedAt <= 0 || got.ReceivedAt < last.ReceivedAt {
			k.Errorf("message %d was received at %d after %d", i, got.ReceivedAt, last.ReceivedAt)
		}
		if i != 0 && i != len(first) && got.ReceivedAt != last.ReceivedAt {
			k.Errorf("message %d has another received_at than its neighbour", i)
		}
		if w, found := k.row(got.Seq); !found || w.DueAt != got.ReceivedAt || w.Queue != source {
			k.Errorf("message %d: work %+v, want it due when received", i, w)
		}
		last = got
	}
}

// wantKept checks how many rows a source has.
func (k *kit) wantKept(source model.SourceID, messages, work, outcomes int64) {
	k.Helper()
	got := [3]int64{
		k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_message WHERE source = %d`, source)),
		k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_work WHERE queue = %d`, source)),
		k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_outcome WHERE source = %d`, source)),
	}
	if want := [3]int64{messages, work, outcomes}; got != want {
		k.Errorf("messages, works and outcomes are %v, want %v", got, want)
	}
}

func repeatedPut(k *kit) {
	source := k.source()
	messages := k.put(source, 5)
	more := append([]model.NewMessage{newMessage(source, "new")}, messages...)
	more = append(more, newMessage(source, "newer"))
	for range 2 {
		k.keep(model.PutPending, more)
		k.wantKept(source, 7, 7, 0)
	}
	for _, want := range more {
		got, err := k.Body(k.ctx(), want.ID)
		k.must(err)
		if diff := sameMessage(want, got.NewMessage); diff != "" {
			k.Error(diff)
		}
	}
}

func repeatedAfterSuccess(k *kit) {
	source, owner := k.source(), k.instance()
	messages := k.put(source, 3)
	work := k.claimStarted(source, owner, 3)
	k.settle(model.SettleSuccess, work[0])
	k.settle(model.SettleFailed, work[1])
	for _, how := range []model.Put{model.PutPending, model.PutSuccess} {
		k.keep(how, messages)
		k.wantKept(source, 3, 2, 1)
	}
	k.wantState(messages[0].ID, model.Success)
	k.wantState(messages[1].ID, model.Failed)
	k.wantState(messages[2].ID, model.Processing)
	if n := k.stats(source).Success; n != 1 {
		k.Errorf("%d are counted as success, want 1", n)
	}
}

func concurrentPuts(k *kit) {
	source := k.source()
	messages := make([]model.NewMessage, 40)
	for i := range messages {
		messages[i] = newMessage(source, fmt.Sprint(i))
	}
	var wg sync.WaitGroup
	for i := range 8 {
		// Each begins elsewhere: the same rows, taken in another order.
		turned := slices.Concat(messages[i*5:], messages[:i*5])
		wg.Go(func() {
			if _, err := k.PutMessages(k.ctx(), model.PutPending, turned); err != nil {
				k.Error(err)
			}
		})
	}
	wg.Wait()
	k.wantKept(source, 40, 40, 0)
}

func twiceInABatch(k *kit) {
	source := k.source()
	m := newMessage(source, "twin")
	k.keep(model.PutPending, []model.NewMessage{m, newMessage(source, "x"), m})
	k.wantKept(source, 2, 2, 0)
}

func importing(k *kit) {
	source, owner := k.source(), k.instance()
	messages := []model.NewMessage{newMessage(source, "old"), newMessage(source, "older")}
	for range 2 { // the second changes nothing
		k.keep(model.PutSuccess, messages)
		k.wantKept(source, 2, 0, 2)
	}
	view, attempts := k.view(messages[0].ID)
	if view.State != model.Success || view.FinishedAt != view.ReceivedAt || view.RetryCount != 0 || len(attempts) != 0 {
		k.Errorf("shown as %+v with attempts %v", view, attempts)
	}
	if work := k.claim(source, owner, 10); len(work) != 0 {
		k.Errorf("claimed %d", len(work))
	}
	if got := k.stats(source); got.Success != 2 || got.Pending != 0 || got.Due != 0 {
		k.Errorf("counted as %+v", got)
	}
	k.keep(model.PutPending, messages)
	k.wantKept(source, 2, 0, 2)
}

func rejectedRow(k *kit) {
	source := k.source()
	good, bad := newMessage(source, "good"), newMessage(source, "bad")
	bad.ContentType = strings.Repeat("x", model.MaxContentType+1)
	for _, batch := range [][]model.NewMessage{{good, bad, newMessage(source, "late")}, {bad}} {
		_, err := k.PutMessages(k.ctx(), model.PutPending, batch)
		k.wantCode(err, model.CodeRejected)
		k.wantKept(source, 0, 0, 0)
	}
	k.keep(model.PutPending, []model.NewMessage{good})
	k.wantKept(source, 1, 1, 0)
	_, err := k.Body(k.ctx(), bad.ID)
	k.wantCode(err, model.CodeNotFound)
	_, _, err = k.Message(k.ctx(), uuid.New())
	k.wantCode(err, model.CodeNotFound)
}
