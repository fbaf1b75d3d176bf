package sqlite

import (
	"context"
	"database/sql"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// takeKeys takes the Dedup keys of messages, those whose window is over from
// whoever had them, and returns the places of the messages whose key is another
// one's.
func takeKeys(t *tx, messages []model.NewMessage) ([]int, error) {
	twins := columns.Twins(messages)
	if len(twins) == 0 {
		return nil, nil
	}
	owners := make([]uuid.UUID, len(twins))
	for i := range twins {
		twin := &twins[i]
		err := t.query(func(rows *sql.Rows) error {
			var id []byte
			err := rows.Scan(&id)
			copy(owners[i][:], id)
			return err
		}, `INSERT INTO posthouse_dedup AS kept (source, hash, id, expires_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (source, hash) DO UPDATE SET
				id = CASE WHEN kept.expires_at <= ?5 THEN excluded.id ELSE kept.id END,
				expires_at = CASE WHEN kept.expires_at <= ?5 THEN excluded.expires_at ELSE kept.expires_at END
			RETURNING id`, twin.Source, twin.Hash[:], twin.ID[:], t.now.Add(twin.Window), t.now)
		if err != nil {
			return nil, err
		}
	}
	return columns.Duplicates(messages, twins, owners), nil
}

// ForgetKeys deletes keys whose window is over.
func (s *Store) ForgetKeys(ctx context.Context, limit int) (forgotten int, err error) {
	err = s.write(ctx, "forget keys", func(t *tx) error {
		n, err := t.exec(`DELETE FROM posthouse_dedup WHERE (source, hash) IN
			(SELECT source, hash FROM posthouse_dedup WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, t.now, limit)
		forgotten = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return forgotten, nil
}
