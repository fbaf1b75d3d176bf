package mysql

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// dedupKey is the primary key of posthouse_dedup.
type dedupKey struct {
	source model.SourceID
	hash   [32]byte
}

// takeKeys takes the Dedup keys, those whose window is over from whoever had
// them, and says which message has each by now. The rows are locked until the
// transaction ends, in the order of twins, so that another one that wants the
// same key waits for what becomes of this one.
func (c *call) takeKeys(todo *script, twins []columns.Twin) ([]uuid.UUID, error) {
	owners := make([]uuid.UUID, len(twins))
	from := 0
	for some := range slices.Chunk(twins, packetRows) {
		var args []any
		keys := make([]dedupKey, len(some))
		places := make(map[dedupKey]int, len(some))
		for i := range some {
			twin := &some[i]
			args = append(args, twin.Source, twin.Hash[:], twin.ID[:], twin.Window.Microseconds())
			keys[i] = dedupKey{twin.Source, twin.Hash}
			places[keys[i]] = from + i
		}
		// Assignments are made from left to right.
		todo.add(`INSERT INTO posthouse_dedup (source, hash, id, expires_at) VALUES `+repeat(`(?,?,?,@now+?)`, len(some))+`
			ON DUPLICATE KEY UPDATE id = if(posthouse_dedup.expires_at <= @now, VALUES(id), posthouse_dedup.id),
				expires_at = if(posthouse_dedup.expires_at <= @now, VALUES(expires_at), posthouse_dedup.expires_at)`, args...)
		condition, args := isOneOf(keys)
		todo.add(`SELECT d.source, d.hash, d.id FROM posthouse_dedup d FORCE INDEX (PRIMARY) WHERE `+condition, args...)
		err := c.query(todo, func(rows *sql.Rows) error {
			var key dedupKey
			var hash, id []byte
			err := into(rows, &key.source, &hash, &id)
			copy(key.hash[:], hash)
			if place, asked := places[key]; asked {
				copy(owners[place][:], id)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		*todo = script{}
		from += len(some)
	}
	return owners, nil
}

// isOneOf is the condition that a row d of posthouse_dedup has one of the keys,
// which are in order.
func isOneOf(keys []dedupKey) (condition string, args []any) {
	for i, first := 0, 0; i < len(keys); i++ {
		if i < len(keys)-1 && keys[i+1].source == keys[i].source {
			continue
		}
		if first > 0 {
			condition += " OR "
		}
		condition += `d.source = ? AND d.hash IN (` + repeat("?", i+1-first) + `)`
		args = append(args, keys[i].source)
		for _, key := range keys[first : i+1] {
			args = append(args, key.hash[:])
		}
		first = i + 1
	}
	return "(" + condition + ")", args
}

// ForgetKeys deletes keys whose window is over. It finds them without locks and
// deletes them in the order in which they are taken.
func (s *Store) ForgetKeys(ctx context.Context, limit int) (forgotten int, err error) {
	if limit < 1 {
		return 0, nil
	}
	err = s.write(ctx, "forget keys", func(c *call) error {
		forgotten = 0
		var over []dedupKey
		var look script
		look.add(`SELECT source, hash FROM posthouse_dedup FORCE INDEX (posthouse_dedup_expiry) WHERE expires_at <= `+now+`
			ORDER BY expires_at LIMIT ?`, limit)
		err := c.query(&look, func(rows *sql.Rows) error {
			var key dedupKey
			var hash []byte
			err := into(rows, &key.source, &hash)
			copy(key.hash[:], hash)
			over = append(over, key)
			return err
		})
		if err != nil {
			return err
		}
		slices.SortFunc(over, func(a, b dedupKey) int {
			return cmp.Or(cmp.Compare(a.source, b.source), bytes.Compare(a.hash[:], b.hash[:]))
		})
		for some := range slices.Chunk(over, packetRows) {
			condition, args := isOneOf(some)
			var forget script
			forget.add(`DELETE d FROM posthouse_dedup d FORCE INDEX (PRIMARY) WHERE `+condition+` AND d.expires_at <= `+now, args...)
			n, err := c.exec(&forget)
			if err != nil {
				return err
			}
			forgotten += int(n)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return forgotten, nil
}
