package storetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/posthouse/posthouse/internal/model"
)

// recover compares the orphans and ends some of them.
func (m *machine) recover(t *rapid.T) {
	all, err := m.s.Orphans(m.ctx, 100_000)
	m.must(t, err)
	want := m.o.orphans()
	var found []model.Seq
	var batch []model.Settlement
	for _, orphan := range all {
		if !slices.Contains(m.queues, orphan.Queue) {
			continue // of another history
		}
		i := len(found)
		found = append(found, orphan.Seq)
		if i >= len(want) {
			continue
		}
		is := want[i]
		if !orphan.OwnerDead || orphan.Alone != (is.started && m.o.left[is.owner] == 1) || orphan.Token != is.token ||
			orphan.RetryCount != is.retries || orphan.Lost != is.lost || (orphan.StartedAt != 0) != is.started {
			t.Fatalf("orphan %+v, oracle %+v, whose owner left %d started", orphan, is, m.o.left[is.owner])
		}
		if rapid.Bool().Draw(t, "recovered") {
			batch = append(batch, m.drawSettlement(t, orphan.Work))
		}
	}
	m.same(t, "orphans", seqsOf(want), append([]model.Seq{}, found...))
	m.apply(t, batch)
}

func (m *machine) join(t *rapid.T) {
	if len(m.instances) >= 5 {
		t.Skip("enough instances")
	}
	id := model.InstanceID(newToken())
	lease := rapid.SampledFrom([]model.Micros{hour, 1}).Draw(t, "lease")
	m.must(t, m.s.JoinInstance(m.ctx, id, "property", lease, nil))
	m.instances = append(m.instances, id)
	m.o.living[id], m.o.expired[id] = true, lease < hour
}

func (m *machine) leave(t *rapid.T) {
	id := m.instance(t)
	m.must(t, m.s.LeaveInstance(m.ctx, id))
	m.o.die(id)
}

func (m *machine) beat(t *rapid.T) {
	p := model.HeartbeatParams{Instance: m.instance(t), LeaseFor: rapid.SampledFrom([]model.Micros{hour, 1}).Draw(t, "lease"),
		Bury: rapid.Bool().Draw(t, "bury")}
	time.Sleep(2 * time.Microsecond) // so that leases of one microsecond have run out
	got, err := m.s.Beat(m.ctx, p)
	m.must(t, err)
	m.same(t, "alive", m.o.beat(p), got.Alive)
}

// partitions draws some, each once, in any order.
func (m *machine) partitions(t *rapid.T) []model.Partition {
	var all []model.Partition
	for _, queue := range m.queues {
		for n := range m.agreed.get(queue).Partitions {
			all = append(all, model.Partition{Queue: queue, Number: n})
		}
	}
	return rapid.Permutation(all).Draw(t, "partitions")[:rapid.IntRange(1, len(all)).Draw(t, "how many")]
}

func (m *machine) take(t *rapid.T) {
	all, id := m.partitions(t), m.instance(t)
	got, err := m.s.TakeLeases(m.ctx, id, all)
	m.must(t, err)
	var want []model.Lease
	for _, p := range all {
		want = append(want, m.o.take(p, id))
	}
	for i := range got {
		got[i].Since = 0 // the oracle has no such clock
	}
	m.same(t, "leases", want, got)
}

func (m *machine) drop(t *rapid.T) {
	all, id := m.partitions(t), m.instance(t)
	got, err := m.s.DropLeases(m.ctx, id, anySince(all...))
	m.must(t, err)
	want := 0
	for _, p := range all {
		if m.o.drop(p, id) {
			want++
		}
	}
	m.same(t, "dropped", want, got)
}
