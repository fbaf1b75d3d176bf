// Package guard answers one question: may an inbox run on this store? It stands
// before the stores that embedding programs open, so that none of them forgets
// to ask.
package guard

import (
	"context"
	"fmt"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/model"
)

// DB is a store that can tell whether it is fit for use.
type DB interface {
	inbox.Store
	MigrateUp(ctx context.Context) ([]int, error)
	CheckReady(ctx context.Context) error
	Close() error
}

// Signals is what a store offers beside where its database can wake other
// processes. The inbox uses it where it finds it; the guard lets it through.
type Signals interface {
	Notify(ctx context.Context, queues []model.SourceID) error
	Listen(ctx context.Context, heard func([]model.SourceID)) error
}

// Store is an inbox.Store that an inbox cannot begin to use before its tables
// are up to date and its settings are known to lose nothing.
type Store struct {
	base
	db DB
}

type base = inbox.Store

var _ inbox.Store = Store{}

// New guards a database.
func New(db DB) Store { return Store{db, db} }

// Register is how inbox.Open begins, and where it is refused.
func (s Store) Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.base.Register(ctx, specs)
}

// Migrate brings the tables up to date, and then checks the settings.
func (s Store) Migrate(ctx context.Context) error {
	if _, err := s.db.MigrateUp(ctx); err != nil {
		return fmt.Errorf("bring the tables up to date: %w", err)
	}
	return s.check(ctx)
}

// Close closes the database.
func (s Store) Close() error { return s.db.Close() }

func (s Store) check(ctx context.Context) error {
	if err := s.db.CheckReady(ctx); err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	return nil
}
