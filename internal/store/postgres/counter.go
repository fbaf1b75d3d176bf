package postgres

import (
	"context"
	"math/rand/v2"
	"time"
)

// What has succeeded is counted by adding rows, which makes nobody wait for
// anybody, and costs the same however long somebody holds on to an old snapshot:
// a row that is changed again and again is found past all its former versions.
// Now and then a process gathers them.

// count begins a statement that adds to the counters of succeeded messages.
const count = `INSERT INTO posthouse_counted (source, succeeded) `

// gather moves to the counters what was added and nobody else is moving.
const gather = `WITH gathered AS (
		DELETE FROM posthouse_counted
		WHERE ctid = ANY (ARRAY(SELECT ctid FROM posthouse_counted LIMIT 10000 FOR UPDATE SKIP LOCKED))
		RETURNING source, succeeded
	)
	INSERT INTO posthouse_counter (source, shard, succeeded)
	SELECT source, 0, sum(succeeded) FROM gathered GROUP BY source ORDER BY source
	ON CONFLICT (source, shard) DO UPDATE SET succeeded = posthouse_counter.succeeded + excluded.succeeded`

const (
	// gatherEvery is how many settlements and puts a process makes between two gatherings.
	gatherEvery = 512
	// gatherTimeout bounds how long a call may be held up by one.
	gatherTimeout = time.Second
)

// gatherNowAndThen gathers after so many calls, which processes begin to count
// anywhere. Where it fails nothing is lost, and another call will do it.
func (s *Store) gatherNowAndThen(ctx context.Context) {
	if s.settled.Add(1)%gatherEvery != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	_, _ = s.exec(ctx, "gather counters", gather)
}

func firstSettled() uint32 { return rand.Uint32N(gatherEvery) }
