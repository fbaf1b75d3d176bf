package delivery

import (
	"context"
	"sync"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// maxTemplates bounds how many versions are kept ready; beyond, all are read anew.
const maxTemplates = 2000

// templateReader reads versions that requests have frozen.
type templateReader interface {
	Templates(ctx context.Context, ids []model.TemplateID) ([]model.TemplateVersion, error)
}

// templates keeps versions ready. They never change.
type templates struct {
	store templateReader

	mu    sync.Mutex
	ready map[model.TemplateID]compiled
}

type compiled struct {
	*template.Compiled
	err error // it cannot be compiled
}

func newTemplates(store templateReader) *templates {
	return &templates{store: store, ready: map[model.TemplateID]compiled{}}
}

// fetch makes those of the versions ready that are not.
func (t *templates) fetch(ctx context.Context, ids []model.TemplateID) error {
	var missing []model.TemplateID
	t.mu.Lock()
	seen := map[model.TemplateID]bool{}
	for _, id := range ids {
		if _, ok := t.ready[id]; !ok && !seen[id] {
			seen[id] = true
			missing = append(missing, id)
		}
	}
	t.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	versions, err := t.store.Templates(ctx, missing)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) > maxTemplates {
		clear(t.ready)
	}
	for i := range versions {
		var c compiled
		c.Compiled, c.err = template.Compile(versions[i])
		t.ready[missing[i]] = c
	}
	return nil
}

// get returns a version that was fetched; false: it is not ready (any more).
func (t *templates) get(id model.TemplateID) (compiled, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.ready[id]
	return c, ok
}
