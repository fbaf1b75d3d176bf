package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func allAtOnce(c *center) {
	c.alone("NC-13 NC-21 whatever is done at once, each delivery is in one place and nothing is done twice", chaotic)
}

// chaos is what several callers do to the deliveries of one channel at once. Their
// requests expire while it goes on.
type chaos struct {
	*center
	channel model.Source
	owner   model.InstanceID
	until   time.Time

	mu         sync.Mutex
	requests   []uuid.UUID
	deliveries []uuid.UUID
	secrets    []model.Seq
	succeeded  map[string]bool // deliveries in their replay rounds
}

const (
	chaosTime = 1500 * time.Millisecond
	// chaosLife is how long at most a request may wait.
	chaosLife = 500 * time.Millisecond
	// chaosRecent is how many of the last ones are chosen from.
	chaosRecent = 50
)

func chaotic(c *center) {
	x := &chaos{center: c, channel: c.channel(), owner: c.instance(), until: time.Now().Add(chaosTime),
		succeeded: map[string]bool{}}
	var wg sync.WaitGroup
	for name, do := range map[string]func() error{
		"put": x.put, "carry": x.carry, "carry too": x.carry, "cancel": x.cancel, "replay": x.replay, "replay too": x.replay,
		"resolve": x.resolve, "expire": x.expireSome, "expire too": x.expireSome, "erase": x.eraseSome,
	} {
		wg.Go(func() {
			for n := 0; time.Now().Before(x.until) || n == 0; n++ {
				if err := do(); err != nil {
					c.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	x.holds()
}

// recent chooses n of the last ones.
func recent[T any](x *chaos, all *[]T, n int) (chosen []T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := (*all)[max(0, len(*all)-chaosRecent):]
	for range n {
		if len(last) > 0 {
			chosen = append(chosen, last[rand.IntN(len(last))])
		}
	}
	return chosen
}

func (x *chaos) put() error {
	var requests []model.NewRequest
	for range 1 + rand.IntN(5) {
		r := x.secret(x.channel)
		r.ExpiresAt = model.MicrosOf(time.Now().Add(rand.N(chaosLife)))
		requests = append(requests, r)
	}
	answers, err := x.PutRequests(x.ctx(), requests)
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, a := range answers {
		x.requests = append(x.requests, requests[i].ID)
		x.deliveries = append(x.deliveries, requests[i].Deliveries[0].ID)
		x.secrets = append(x.secrets, a.First.Seq)
	}
	return err
}

// carry claims deliveries and ends them in any way.
func (x *chaos) carry() error {
	p := x.params(x.channel.ID, x.owner, 8)
	p.Token, p.Shared, p.Bare, p.Start, p.AloneFrom = newToken(), true, true, true, 1000
	claimed, err := x.ClaimWork(x.ctx(), p)
	if err != nil || len(claimed.Works) == 0 {
		return err
	}
	kinds := []model.SettleKind{model.SettleSuccess, model.SettleSuccess, model.SettleRetry, model.SettleFailed, model.SettleRelease,
		model.SettleDead, model.SettleUncertain}
	var settlements []model.Settlement
	x.mu.Lock()
	for _, w := range claimed.Works {
		end := ended(w, kinds[rand.IntN(len(kinds))])
		settlements = append(settlements, end)
		round := fmt.Sprint(w.Seq, " ", w.Replay)
		if end.Kind == model.SettleSuccess {
			if x.succeeded[round] {
				x.Errorf("delivery %d succeeds twice in round %d", w.Seq, w.Replay)
			}
			x.succeeded[round] = true
		}
	}
	x.mu.Unlock()
	applied, err := x.Settle(x.ctx(), settlements)
	if slices.Contains(applied, false) {
		x.Error("a settlement was lost: the delivery was claimed again meanwhile, or changed")
	}
	return err
}

func (x *chaos) cancel() error {
	for _, id := range recent(x, &x.requests, 1) {
		if _, err := x.CancelRequest(x.ctx(), id, by); err != nil {
			return err
		}
	}
	return nil
}

func (x *chaos) replay() error {
	_, err := x.ReplayDeliveries(x.ctx(), model.ReplayParams{IDs: recent(x, &x.deliveries, 6), Force: rand.IntN(2) == 0, Audit: by})
	return err
}

func (x *chaos) resolve() error {
	for _, id := range recent(x, &x.deliveries, 1) {
		if _, err := x.ResolveDelivery(x.ctx(), id, rand.IntN(2) == 0, by); err != nil {
			return err
		}
	}
	return nil
}

func (x *chaos) expireSome() error {
	_, err := x.ExpireDeliveries(x.ctx(), chaosRecent)
	return err
}

func (x *chaos) eraseSome() error {
	_, err := x.EraseSecrets(x.ctx(), recent(x, &x.secrets, 2))
	return err
}

// holds looks at what must hold when all have gone and all has expired.
func (x *chaos) holds() {
	x.Helper()
	deadline := time.Now().Add(chaosLife + time.Minute)
	open := fmt.Sprintf(`SELECT count(*) FROM posthouse_work WHERE queue = %d AND state IN (0, 1)`, x.channel.ID)
	for x.number(open)+x.number(`SELECT count(*) FROM posthouse_expiry`) != 0 {
		if time.Now().After(deadline) {
			x.Fatalf("all have expired long ago, and %d are open, and %d would still expire", x.number(open), x.number(`SELECT count(*) FROM posthouse_expiry`))
		}
		x.must(x.expireSome())
	}
	for what, from := range map[string]string{
		"both in work and succeeded": `posthouse_work w JOIN posthouse_outcome o ON o.seq = w.seq`,
		"nowhere": `posthouse_delivery d LEFT JOIN posthouse_work w ON w.seq = d.seq LEFT JOIN posthouse_outcome o ON o.seq = d.seq
			WHERE w.seq IS NULL AND o.seq IS NULL`,
		"not final and without their sensitive values": `posthouse_delivery d JOIN posthouse_work w ON w.seq = d.seq
			LEFT JOIN posthouse_secret x ON x.request = d.request WHERE w.state IN (0, 1, 5) AND x.request IS NULL`,
	} {
		if n := x.number(`SELECT count(*) FROM ` + from); n != 0 {
			x.Errorf("%d deliveries are %s", n, what)
		}
	}
	succeeded := x.number(`SELECT count(*) FROM posthouse_outcome`)
	if got := x.stats(x.channel.ID).Success; got != succeeded {
		x.Errorf("%d are counted as succeeded, and %d have", got, succeeded)
	}
	x.Logf("%d deliveries, of which %d have succeeded", len(x.deliveries), succeeded)
}
