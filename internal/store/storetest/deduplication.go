package storetest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func deduplication(k *kit) {
	k.run("IN-24 of a hundred copies at once one is kept, and the others are told after it is", twinsAtOnce)
	k.run("IN-24 calls at once with the same keys in other orders keep each once", twinsInOtherOrders)
	k.run("IN-24 three copies among 61 others in one call make 62 rows", twinsInACall)
	k.run("IN-24 the same key of two sources is two", twinsOfTwoSources)
	k.run("IN-24 a key whose window is over is free", windowOver)
	k.run("IN-24 a put that is repeated has no duplicates, also after a success", repeatedWithKeys)
	k.run("IN-24 a key outlives its message", keyOutlives)
	k.run("IN-24 what was rejected took no key", rejectedTakesNoKey)
	k.run("IN-24 keys are forgotten when their window is over, some at a time", forgetting)
}

// copyOf is a message with a sender's key.
func copyOf(source model.SourceID, key string, window time.Duration) model.NewMessage {
	m := newMessage(source, key)
	m.Dedup = model.Dedup{Hash: sha256.Sum256([]byte(key)), Window: window}
	return m
}

// wantDuplicates puts messages and checks which places are said to be duplicates.
func (k *kit) wantDuplicates(what string, how model.Put, messages []model.NewMessage, want ...int) {
	k.Helper()
	got, err := k.PutMessages(k.ctx(), how, messages)
	k.must(err)
	if diff := cmp.Diff(append([]int{}, want...), append([]int{}, got...)); diff != "" {
		k.Errorf("%s, duplicates: %s", what, diff)
	}
}

func twinsAtOnce(k *kit) {
	source := k.source()
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	var kept atomic.Int32
	var wg sync.WaitGroup
	for i := range 100 {
		m := copyOf(source, "twin", time.Hour)
		wg.Go(func() {
			duplicates, err := stores[i%2].PutMessages(k.ctx(), model.PutPending, []model.NewMessage{m})
			switch {
			case err != nil:
				k.Error(err)
			case len(duplicates) == 0:
				kept.Add(1)
			default:
				stats, err := stores[(i+1)%2].Stats(k.ctx())
				if err != nil {
					k.Error(err)
				}
				for _, s := range stats {
					if s.Source.ID == source && s.Pending != 1 {
						k.Error("it was told a duplicate of what is not there")
					}
				}
			}
		})
	}
	wg.Wait()
	if n := kept.Load(); n != 1 {
		k.Errorf("%d of the copies were kept", n)
	}
	k.wantKept(source, 1, 1, 0)
}

func twinsInOtherOrders(k *kit) {
	const keys, callers = 40, 8
	source := k.source()
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	var told atomic.Int32
	var wg sync.WaitGroup
	for i := range callers {
		var batch []model.NewMessage
		for j := range keys {
			batch = append(batch, copyOf(source, fmt.Sprint("key ", (j*7+i*5)%keys), time.Hour))
		}
		wg.Go(func() {
			duplicates, err := stores[i%2].PutMessages(k.ctx(), model.PutPending, batch)
			if err != nil {
				k.Error(err)
			}
			told.Add(int32(len(duplicates)))
		})
	}
	wg.Wait()
	if n := told.Load(); n != keys*(callers-1) {
		k.Errorf("%d were told duplicates, want %d", n, keys*(callers-1))
	}
	k.wantKept(source, keys, keys, 0)
}

func twinsInACall(k *kit) {
	source := k.source()
	batch := make([]model.NewMessage, 64)
	for i := range batch {
		switch i {
		case 3, 20, 63:
			batch[i] = copyOf(source, "twin", time.Hour)
		case 4, 5: // without a key two of the same are two
			batch[i] = newMessage(source, "twin")
		default:
			batch[i] = copyOf(source, fmt.Sprint("key ", i), time.Hour)
		}
	}
	for _, what := range []string{"the first time", "repeated"} {
		k.wantDuplicates(what, model.PutPending, batch, 20, 63)
		k.wantKept(source, 62, 62, 0)
	}
	var last model.Seq
	for i, m := range batch {
		if i == 20 || i == 63 {
			_, err := k.Body(k.ctx(), m.ID)
			k.wantCode(err, model.CodeNotFound)
			continue
		}
		got, err := k.Body(k.ctx(), m.ID)
		k.must(err)
		if got.Seq <= last {
			k.Errorf("message %d has seq %d after %d", i, got.Seq, last)
		}
		last = got.Seq
	}
}

func twinsOfTwoSources(k *kit) {
	a, b := k.source(), k.source()
	batch := []model.NewMessage{copyOf(a, "x", time.Hour), copyOf(b, "x", time.Hour), copyOf(a, "X", time.Hour), copyOf(b, "x", time.Hour)}
	k.wantDuplicates("in one call", model.PutPending, batch, 3)
	k.wantKept(a, 2, 2, 0)
	k.wantKept(b, 1, 1, 0)
	k.wantDuplicates("in another", model.PutPending, []model.NewMessage{copyOf(b, "X", time.Hour), copyOf(a, "X", time.Hour)}, 1)
	// Bytes that an encoding or a collation would make alike.
	var odd []model.NewMessage
	for _, hash := range [][32]byte{{}, {1}, {'a'}, {'A'}, {0xff}, {0xfe}, {'\\'}, {'\''}, {31: 1}, {' '}, {0xc3, 0xa9}, {0xc3, 0x89}} {
		m := newMessage(a, "odd")
		m.Dedup = model.Dedup{Hash: hash, Window: time.Hour}
		odd = append(odd, m)
	}
	k.wantDuplicates("odd hashes", model.PutPending, odd)
}

func windowOver(k *kit) {
	source := k.source()
	short, next, late := copyOf(source, "x", time.Microsecond), copyOf(source, "x", time.Hour), copyOf(source, "x", time.Hour)
	k.wantDuplicates("the first", model.PutPending, []model.NewMessage{short})
	k.eventually("the end of a microsecond", func() bool {
		duplicates, err := k.PutMessages(k.ctx(), model.PutPending, []model.NewMessage{next})
		k.must(err)
		return len(duplicates) == 0
	})
	k.wantDuplicates("within the window of the second", model.PutPending, []model.NewMessage{late}, 0)
	k.wantDuplicates("the first again", model.PutPending, []model.NewMessage{short}, 0)
	k.wantKept(source, 2, 2, 0)
}

func repeatedWithKeys(k *kit) {
	source, owner := k.source(), k.instance()
	batch := []model.NewMessage{copyOf(source, "a", time.Hour), copyOf(source, "b", time.Hour), newMessage(source, "c")}
	k.wantDuplicates("the first time", model.PutPending, batch)
	work := k.claimStarted(source, owner, 2)
	k.settle(model.SettleSuccess, work[0])
	k.settle(model.SettleFailed, work[1])
	for _, how := range []model.Put{model.PutPending, model.PutSuccess} {
		k.wantDuplicates("repeated", how, batch)
		k.wantKept(source, 3, 2, 1)
	}
	turned := slices.Clone(batch)
	slices.Reverse(turned)
	k.wantDuplicates("with a copy before it", model.PutPending, append([]model.NewMessage{copyOf(source, "a", time.Hour)}, turned...), 0)
	k.wantKept(source, 3, 2, 1)
	k.wantState(batch[0].ID, model.Success)
}

func keyOutlives(k *kit) {
	source, owner := k.source(), k.instance()
	k.wantDuplicates("put", model.PutPending, []model.NewMessage{copyOf(source, "a", time.Hour)})
	k.wantDuplicates("imported", model.PutSuccess, []model.NewMessage{copyOf(source, "b", time.Hour)})
	k.settle(model.SettleSuccess, k.claimStarted(source, owner, 1)...)
	copies := []model.NewMessage{copyOf(source, "a", time.Hour), copyOf(source, "b", time.Hour)}
	k.wantDuplicates("after their success", model.PutPending, copies, 0, 1)
	k.change(`DELETE FROM posthouse_outcome WHERE source = %d`, source)
	k.change(`DELETE FROM posthouse_message WHERE source = %d`, source)
	k.wantDuplicates("after they were deleted", model.PutPending, copies, 0, 1)
	k.wantDuplicates("as an import", model.PutSuccess, copies, 0, 1)
	k.wantKept(source, 0, 0, 0)
}

func rejectedTakesNoKey(k *kit) {
	source := k.source()
	bad := copyOf(source, "bad", time.Hour)
	bad.ContentType = strings.Repeat("x", model.MaxContentType+1)
	_, err := k.PutMessages(k.ctx(), model.PutPending, []model.NewMessage{copyOf(source, "good", time.Hour), bad})
	k.wantCode(err, model.CodeRejected)
	k.wantDuplicates("others", model.PutPending, []model.NewMessage{copyOf(source, "good", time.Hour), copyOf(source, "bad", time.Hour)})
	k.wantKept(source, 2, 2, 0)
	// A duplicate is not looked at any further.
	k.wantDuplicates("the bad one, which is known now", model.PutPending, []model.NewMessage{bad}, 0)
}

func forgetting(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		source := k.source()
		var batch []model.NewMessage
		for i := range 7 {
			window := time.Microsecond
			if i > 4 {
				window = time.Hour
			}
			batch = append(batch, copyOf(source, fmt.Sprint("key ", i), window))
		}
		k.wantDuplicates("put", model.PutPending, batch)
		time.Sleep(10 * time.Microsecond) // the windows of one
		for _, c := range []struct{ limit, want, left int }{{3, 3, 4}, {100, 2, 2}, {100, 0, 2}} {
			n, err := k.ForgetKeys(k.ctx(), c.limit)
			k.must(err)
			if left := k.number(`SELECT count(*) FROM posthouse_dedup`); n != c.want || left != int64(c.left) {
				k.Errorf("of at most %d forgot %d, want %d; %d are left, want %d", c.limit, n, c.want, left, c.left)
			}
		}
		var copies []model.NewMessage
		for i := range 7 {
			copies = append(copies, copyOf(source, fmt.Sprint("key ", i), time.Hour))
		}
		k.wantDuplicates("copies", model.PutPending, copies, 5, 6)
	})
}
