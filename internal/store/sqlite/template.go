package sqlite

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// PutTemplates makes versions known, each content once.
func (s *Store) PutTemplates(ctx context.Context, versions []model.TemplateVersion) (ids []model.TemplateID, err error) {
	if len(versions) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "put templates", func(t *tx) error {
		ids = make([]model.TemplateID, len(versions))
		for i := range versions {
			v := &versions[i]
			hash := columns.TemplateHash(*v)
			_, err := t.exec(`INSERT INTO posthouse_template (hash, code, kind, locale, subject, html, body, schema)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING`,
				hash[:], v.Code, v.Kind, v.Locale, v.Subject, v.HTML, v.Text, v.Schema)
			if err != nil {
				return err
			}
			err = t.query(func(rows *sql.Rows) error { return rows.Scan(&ids[i]) }, `SELECT id FROM posthouse_template WHERE hash = ?`, hash[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// Templates returns versions, in the order given.
func (s *Store) Templates(ctx context.Context, ids []model.TemplateID) (versions []model.TemplateVersion, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	const op = "read templates"
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		versions = nil
		err := queries(ctx, snapshot)(func(rows *sql.Rows) error {
			var v model.TemplateVersion
			err := rows.Scan(&v.ID, &v.Code, &v.Kind, &v.Locale, &v.Subject, &v.HTML, &v.Text, &v.Schema)
			versions = append(versions, v)
			return err
		}, `SELECT v.id, v.code, v.kind, v.locale, v.subject, v.html, v.body, v.schema
			FROM json_each(?) wanted CROSS JOIN posthouse_template v ON v.id = wanted.value ORDER BY wanted.key`, list(ids))
		if err == nil && len(versions) != len(ids) {
			return none(op, "a template has no version of that number")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}
