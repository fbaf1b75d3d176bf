package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Replay makes failed messages pending again, with force also successful ones.
func (s *Store) Replay(ctx context.Context, ids []uuid.UUID, force bool) ([]model.ReplayResult, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	given := takeParams()
	defer given.giveBack()
	given.uuids(len(ids), func(i int) *uuid.UUID { return &ids[i] })
	given.bool(force)
	given.done()
	var results []model.ReplayResult
	err := s.write(ctx, "replay", func(ctx context.Context, c conn) error {
		// Each id that is there, once, and whether this statement replayed it.
		replayed := map[uuid.UUID]bool{}
		err := c.run(ctx, replay, given, func(r *row) error {
			id := r.uuid()
			replayed[id] = r.bool()
			return nil
		})
		if err != nil {
			return err
		}
		results = make([]model.ReplayResult, len(ids))
		for i, id := range ids {
			switch done, found := replayed[id]; {
			case done:
				results[i] = model.Replayed
				replayed[id] = false // a second time it is pending
			case found:
				results[i] = model.ReplayRefused
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// replay takes the rows in the order of seq.
const replay = `WITH clock AS MATERIALIZED (
		SELECT ` + now + ` AS t
	), found AS MATERIALIZED (
		SELECT id, seq FROM posthouse_message WHERE id = ANY ($1::uuid[]) ORDER BY seq
	), failed AS (
		UPDATE posthouse_work SET state = 0, due_at = (SELECT t FROM clock), retry_count = 0, lost = 0, replay = replay + 1
		WHERE seq = ANY (ARRAY(SELECT w.seq FROM posthouse_work w WHERE w.seq = ANY (ARRAY(SELECT seq FROM found)) AND w.state + 0 = 2
			ORDER BY w.seq FOR UPDATE)) AND state + 0 = 2
		RETURNING seq
	), succeeded AS (
		DELETE FROM posthouse_outcome
		WHERE $2 AND seq = ANY (ARRAY(SELECT o.seq FROM posthouse_outcome o WHERE $2 AND o.seq = ANY (ARRAY(SELECT seq FROM found))
			ORDER BY o.seq FOR UPDATE))
		RETURNING seq, source, replay
	), again AS (
		INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, (SELECT t FROM clock), 0, 0, 0, source, 0, 0, replay + 1, 0 FROM succeeded
	), counted AS (
		` + count + `SELECT source, -count(*) FROM succeeded GROUP BY source
	)
	SELECT found.id, found.seq IN (SELECT seq FROM failed UNION ALL SELECT seq FROM succeeded) FROM found`
