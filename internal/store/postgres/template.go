package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// putTemplates inserts only what is missing, so that no numbers are used up, by
// the hashes, so that processes that start at the same time do not block each
// other.
const putTemplates = `INSERT INTO posthouse_template (created_at, hash, code, kind, locale, subject, html, body, json_schema)
	SELECT ` + now + `, g.* FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
		AS g (hash, code, kind, locale, subject, html, body, json_schema)
	WHERE NOT EXISTS (SELECT 1 FROM posthouse_template t WHERE t.hash = g.hash)
	ORDER BY g.hash
	ON CONFLICT (hash) DO NOTHING`

// PutTemplates makes versions known. Their numbers are read by another
// statement, which sees what others have put meanwhile.
func (s *Store) PutTemplates(ctx context.Context, versions []model.TemplateVersion) (ids []model.TemplateID, err error) {
	if len(versions) == 0 {
		return nil, nil
	}
	hashes := make([][]byte, len(versions))
	for i, v := range versions {
		hash := columns.TemplateHash(v)
		hashes[i] = hash[:]
	}
	var args []any
	args = append(args, hashes)
	for _, field := range []func(*model.TemplateVersion) string{
		func(v *model.TemplateVersion) string { return v.Code }, func(v *model.TemplateVersion) string { return v.Kind },
		func(v *model.TemplateVersion) string { return v.Locale }, func(v *model.TemplateVersion) string { return v.Subject },
		func(v *model.TemplateVersion) string { return v.HTML }, func(v *model.TemplateVersion) string { return v.Text },
		func(v *model.TemplateVersion) string { return v.Schema },
	} {
		texts := make([]string, len(versions))
		for i := range versions {
			texts[i] = columns.Text(field(&versions[i]))
		}
		args = append(args, texts)
	}
	err = s.write(ctx, "put templates", func(ctx context.Context, c conn) error {
		if _, err := c.exec(ctx, putTemplates, args...); err != nil {
			return err
		}
		ids = make([]model.TemplateID, len(versions))
		return c.query(ctx, func(rows pgx.Rows) error {
			var id model.TemplateID
			var hash []byte
			if err := rows.Scan(&id, &hash); err != nil {
				return err
			}
			for i := range hashes {
				if bytes.Equal(hashes[i], hash) {
					ids[i] = id
				}
			}
			return nil
		}, `SELECT id, hash FROM posthouse_template WHERE hash = ANY ($1::bytea[])`, hashes)
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// Templates returns versions, in the order given.
func (s *Store) Templates(ctx context.Context, ids []model.TemplateID) ([]model.TemplateVersion, error) {
	const op = "read templates"
	numbers := make([]int32, len(ids))
	for i, id := range ids {
		numbers[i] = int32(id)
	}
	found := map[model.TemplateID]model.TemplateVersion{}
	err := s.read(ctx, op, func(ctx context.Context, c conn) error {
		return c.query(ctx, func(rows pgx.Rows) error {
			var v model.TemplateVersion
			err := rows.Scan(&v.ID, &v.Code, &v.Kind, &v.Locale, &v.Subject, &v.HTML, &v.Text, &v.Schema)
			found[v.ID] = v
			return err
		}, `SELECT id, code, kind, locale, subject, html, body, json_schema FROM posthouse_template WHERE id = ANY ($1::int[])`, numbers)
	})
	if err != nil {
		return nil, err
	}
	var versions []model.TemplateVersion
	for _, id := range ids {
		v, known := found[id]
		if !known {
			return nil, &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no version has that number")}
		}
		versions = append(versions, v)
	}
	return slices.Clip(versions), nil
}
