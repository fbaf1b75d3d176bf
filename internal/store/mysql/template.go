package mysql

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// PutTemplates makes versions known. What is missing is inserted in the order of
// the hashes, so that processes that start at the same time do not wait for each
// other in a ring.
func (s *Store) PutTemplates(ctx context.Context, versions []model.TemplateVersion) (ids []model.TemplateID, err error) {
	if len(versions) == 0 {
		return nil, nil
	}
	type hash = [sha256.Size]byte
	byHash := map[hash]*model.TemplateVersion{}
	hashes := make([]hash, len(versions))
	for i := range versions {
		hashes[i] = columns.TemplateHash(versions[i])
		byHash[hashes[i]] = &versions[i]
	}
	all := slices.SortedFunc(maps.Keys(byHash), func(a, b hash) int { return bytes.Compare(a[:], b[:]) })
	err = s.write(ctx, "put templates", func(c *call) error {
		known := map[hash]model.TemplateID{}
		find := func(look *script) error {
			args := make([]any, len(all))
			for i := range all {
				args[i] = all[i][:]
			}
			look.add(`SELECT id, hash FROM posthouse_template FORCE INDEX (posthouse_template_hash) WHERE hash IN (`+repeat("?", len(all))+`)`, args...)
			return c.query(look, func(rows *sql.Rows) error {
				var id model.TemplateID
				var sum []byte
				err := into(rows, &id, &sum)
				known[hash(sum)] = id
				return err
			})
		}
		var look script
		if err := find(&look); err != nil {
			return err
		}
		if len(known) < len(all) {
			var insert script
			insert.add(`START TRANSACTION`)
			for _, sum := range all {
				if known[sum] != 0 {
					continue
				}
				v := byHash[sum]
				insert.add(`INSERT INTO posthouse_template (hash, code, kind, locale, subject, html, text, json_schema, created_at)
					VALUES (?,?,?,?,?,?,?,?,`+now+`) ON DUPLICATE KEY UPDATE id = posthouse_template.id`,
					sum[:], []byte(v.Code), []byte(v.Kind), []byte(v.Locale), []byte(v.Subject), []byte(v.HTML), []byte(v.Text), []byte(v.Schema))
				if err := c.relieve(&insert); err != nil {
					return err
				}
			}
			insert.add(`COMMIT`)
			if err := find(&insert); err != nil {
				return err
			}
		}
		ids = make([]model.TemplateID, len(versions))
		for i, sum := range hashes {
			if ids[i] = known[sum]; ids[i] == 0 {
				return errors.New("a template that was put is not there")
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
	err = s.read(ctx, op, func(c *call) error {
		known := map[model.TemplateID]model.TemplateVersion{}
		wanted := map[model.TemplateID]bool{}
		for _, id := range ids {
			wanted[id] = true
		}
		var one script
		one.add(`SELECT id, code, kind, locale, subject, html, text, json_schema FROM posthouse_template WHERE id IN (` + list(sorted(wanted)) + `)`)
		err := c.query(&one, func(rows *sql.Rows) error {
			var v model.TemplateVersion
			err := into(rows, &v.ID, &v.Code, &v.Kind, &v.Locale, &v.Subject, &v.HTML, &v.Text, &v.Schema)
			known[v.ID] = v
			return err
		})
		versions = make([]model.TemplateVersion, len(ids))
		for i, id := range ids {
			versions[i] = known[id]
			if err == nil && versions[i].ID == 0 {
				err = &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no template has that number")}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}
