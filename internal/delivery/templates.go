package delivery

import (
	"context"
	"errors"
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
	err  error // it cannot be compiled, or is not there
	gone bool  // it is not there
}

func newTemplates(store templateReader) *templates {
	return &templates{store: store, ready: map[model.TemplateID]compiled{}}
}

// fetch makes those of the versions ready that are not. One that is not there, or
// cannot be read, hinders no other: only an error that all meet with is one.
func (t *templates) fetch(ctx context.Context, ids []model.TemplateID) error {
	missing := t.missing(ids)
	if len(missing) == 0 {
		return nil
	}
	versions, err := t.store.Templates(ctx, missing)
	if err == nil {
		for i := range versions {
			t.keep(missing[i], compile(versions[i]))
		}
		return nil
	}
	if isOfAll(ctx, err) {
		return err
	}
	for _, id := range missing {
		versions, err := t.store.Templates(ctx, []model.TemplateID{id})
		switch {
		case err == nil && len(versions) == 1:
			t.keep(id, compile(versions[0]))
		case model.CodeOf(err) == model.CodeNotFound:
			t.keep(id, compiled{err: errors.New("the version of the template that was frozen is not in the store any more"), gone: true})
		case err != nil && isOfAll(ctx, err):
			return err
		}
	}
	return nil
}

// missing are those that are not ready, each once. One that was gone is looked for
// anew: it may have been restored.
func (t *templates) missing(ids []model.TemplateID) (missing []model.TemplateID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[model.TemplateID]bool{}
	for _, id := range ids {
		if c, ok := t.ready[id]; (!ok || c.gone) && !seen[id] {
			seen[id] = true
			missing = append(missing, id)
		}
	}
	return missing
}

func (t *templates) keep(id model.TemplateID, c compiled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) > maxTemplates {
		clear(t.ready)
	}
	t.ready[id] = c
}

// compile makes a version ready. What a panic says may hold what is in it.
func compile(v model.TemplateVersion) (c compiled) {
	defer func() {
		if recover() != nil {
			c = compiled{err: errors.New("a panic while the frozen version of the template was made ready")}
		}
	}()
	c.Compiled, c.err = template.Compile(v)
	return c
}

// isOfAll says whether an error is the store's as a whole, so that asking for less
// would not help.
func isOfAll(ctx context.Context, err error) bool {
	return ctx.Err() != nil || model.CodeOf(err) == model.CodeUnavailable
}

// get returns a version that was fetched; false: it is not ready (any more).
func (t *templates) get(id model.TemplateID) (compiled, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.ready[id]
	return c, ok
}
