package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func (h Harness) schema(t *testing.T) {
	t.Run("up, down and up again", h.upDownUp)
	t.Run("IN-22 work and sources of the first version are kept by the second, there and back", h.secondVersion)
	t.Run("many at once apply each version once", h.migratorsAtOnce)
	t.Run("a schema from the future is refused and not touched", h.newerSchema)
	t.Run("IN-25 a ping notices that a table is missing, and that it is back", h.missingTable)
}

// versions lists which versions there are and which are applied.
func (k *kit) versions() (all, applied []int) {
	k.Helper()
	status, err := k.SchemaStatus(k.ctx())
	k.must(err)
	for _, v := range status {
		all = append(all, v.Version)
		if v.Name == "" {
			k.Errorf("version %d has no name", v.Version)
		}
		if v.AppliedAt != 0 {
			applied = append(applied, v.Version)
		}
	}
	return all, applied
}

func (h Harness) upDownUp(t *testing.T) {
	k := h.kitOf(t, h.OpenEmpty(t))
	for round := range 2 {
		k.wantCode(k.CheckReady(k.ctx()), model.CodeSchema)
		all, applied := k.versions()
		if len(all) == 0 || len(applied) != 0 {
			k.Fatalf("round %d: versions %v, applied %v", round, all, applied)
		}
		done, err := k.MigrateUp(k.ctx())
		k.must(err)
		if _, applied = k.versions(); !slices.Equal(done, all) || !slices.Equal(applied, all) {
			k.Errorf("round %d: applied %v of %v, says %v", round, applied, all, done)
		}
		k.must(k.CheckReady(k.ctx()))
		k.must(k.Ping(k.ctx()))
		if done, err = k.MigrateUp(k.ctx()); err != nil || len(done) != 0 {
			k.Errorf("round %d: up again: %v, %v", round, done, err)
		}
		// It works, and it is empty, also after the tables have been there before.
		source, owner := k.source(), k.instance()
		m, w := k.processing(source, owner)
		k.settle(model.SettleSuccess, w)
		k.wantState(m.ID, model.Success)
		if stats, err := k.Stats(k.ctx()); err != nil || len(stats) != 1 || stats[0].Success != 1 {
			k.Errorf("round %d: stats %+v, %v", round, stats, err)
		}
		for _, newest := range slices.Backward(all) {
			if undone, err := k.MigrateDown(k.ctx()); err != nil || undone != newest {
				k.Fatalf("round %d: took back %d, want %d: %v", round, undone, newest, err)
			}
			k.wantCode(k.CheckReady(k.ctx()), model.CodeSchema)
		}
		if undone, err := k.MigrateDown(k.ctx()); err != nil || undone != 0 {
			k.Errorf("round %d: took back %d of nothing, %v", round, undone, err)
		}
		for _, table := range append(slices.Clone(tables), "message_log") {
			var n int64
			if err := k.raw.QueryRowContext(k.ctx(), "SELECT count(*) FROM posthouse_"+table).Scan(&n); err == nil {
				k.Errorf("round %d: posthouse_%s is still there", round, table)
			}
		}
	}
}

// secondVersion goes back to the schema that knew no keys, and on again, with
// work in it.
func (h Harness) secondVersion(t *testing.T) {
	k := h.kit(t)
	source, owner := k.ordered(serial), k.instance()
	messages := k.put(source.ID, 3)
	work := k.claimStarted(source.ID, owner, 2)
	k.settle(model.SettleFailed, work[0])
	k.take(source.ID, owner)
	for {
		undone, err := k.MigrateDown(k.ctx())
		k.must(err)
		if undone == 2 {
			break
		}
	}
	if holder := model.InstanceID(k.number(fmt.Sprintf(`SELECT holder FROM posthouse_lease WHERE queue = %d`, source.ID))); holder != owner {
		k.Errorf("the queue is held by %d, want %d", holder, owner)
	}
	_, err := k.MigrateUp(k.ctx())
	k.must(err)
	sources, err := k.Sources(k.ctx())
	k.must(err)
	if diff := cmp.Diff([]model.Source{{ID: source.ID, Name: source.Name, Enabled: true}}, sources); diff != "" {
		k.Errorf("nothing is agreed: %s", diff)
	}
	sources, err = k.Register(k.ctx(), []model.SourceSpec{{Name: source.Name, Policy: policy, Wants: serial}})
	k.must(err)
	k.wantAgreed("registered", sources[0].Agreed, 1, serial)
	k.agreed.set(sources...)
	next := k.instance()
	k.leave(owner)
	if got := k.take(source.ID, next); !got.Held {
		k.Errorf("the partition is taken as %+v", got)
	}
	if orphans := k.orphansOf(source.ID); len(orphans) != 1 || orphans[0].Seq != work[1].Seq || orphans[0].Key != (model.Key{}) {
		k.Errorf("orphans %+v", orphans)
	}
	k.wantState(messages[0].ID, model.Failed)
	if again := k.claimStarted(source.ID, next, 5); len(again) != 1 || again[0].Message.ID != messages[2].ID {
		k.Errorf("claimed %+v", again)
	}
}

func (h Harness) migratorsAtOnce(t *testing.T) {
	first := h.OpenEmpty(t)
	stores := []Store{first, h.Again(t, first), h.Again(t, first)}
	k := h.kitOf(t, first)
	var mu sync.Mutex
	var done []int
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			applied, err := s.MigrateUp(k.ctx())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				k.Error(err)
			}
			done = append(done, applied...)
		})
	}
	wg.Wait()
	slices.Sort(done)
	if all, _ := k.versions(); !slices.Equal(done, all) {
		k.Errorf("together they applied %v, want %v", done, all)
	}
	for _, s := range stores {
		k.must(s.CheckReady(k.ctx()))
	}
}

func (h Harness) newerSchema(t *testing.T) {
	k := h.kit(t)
	_, err := k.raw.ExecContext(k.ctx(), `INSERT INTO posthouse_schema (version, name, applied_at) VALUES (9999, 'future', 1)`)
	k.must(err)
	k.wantCode(k.CheckReady(k.ctx()), model.CodeSchema)
	_, err = k.MigrateUp(k.ctx())
	k.wantCode(err, model.CodeSchema)
	_, err = k.MigrateDown(k.ctx())
	k.wantCode(err, model.CodeSchema)
	if all, applied := k.versions(); !slices.Equal(all, applied) || all[len(all)-1] != 9999 {
		k.Errorf("versions %v, applied %v", all, applied)
	}
	_, err = k.raw.ExecContext(k.ctx(), `DELETE FROM posthouse_schema WHERE version = 9999`)
	k.must(err)
	k.must(k.CheckReady(k.ctx()))
}

func (h Harness) missingTable(t *testing.T) {
	k := h.kit(t)
	db := h.DB(t, k.Store)
	rename := func(from, to string) {
		if _, err := db.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			k.Fatal(err)
		}
	}
	for _, name := range tables {
		k.must(k.Ping(k.ctx()))
		rename("posthouse_"+name, "moved_away")
		if err := k.Ping(k.ctx()); err == nil {
			k.Errorf("without posthouse_%s nothing is missing", name)
		}
		rename("moved_away", "posthouse_"+name)
	}
	k.must(k.Ping(k.ctx()))
}
