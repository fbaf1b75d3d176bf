package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/mysql"
	"github.com/posthouse/posthouse/internal/store/postgres"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

// Store is all that the binary does with a database.
type Store interface {
	inbox.Store
	notificationStore
	SetEnabled(ctx context.Context, source string, enabled bool) error
	Sources(ctx context.Context) ([]model.Source, error)
	ListMessages(ctx context.Context, p model.ListParams) (model.MessagePage, error)
	Instances(ctx context.Context) ([]model.Instance, error)
	Message(ctx context.Context, id uuid.UUID) (model.MessageView, []model.AttemptView, error)
	Body(ctx context.Context, id uuid.UUID) (model.Message, error)
	Ping(ctx context.Context) error
	MigrateUp(ctx context.Context) ([]int, error)
	MigrateDown(ctx context.Context) (int, error)
	SchemaStatus(ctx context.Context) ([]model.SchemaVersion, error)
	CheckReady(ctx context.Context) error
	Close() error
}

// bounded is a Store that does not take bodies of every size.
type bounded interface {
	// MaxBody is the largest body that the database takes, in bytes.
	MaxBody(ctx context.Context) (int64, error)
}

var (
	_ Store = (*sqlite.Store)(nil)
	_ Store = (*postgres.Store)(nil)
	_ Store = (*mysql.Store)(nil)

	_ bounded = (*mysql.Store)(nil)
)

// StoreParams says which store to open.
type StoreParams struct {
	URL string // sqlite:PATH, postgres://… or mysql://…
	// Consumer says that this process consumes: on SQLite only one may.
	Consumer    bool
	AllowUnsafe bool // accept settings that may lose what was acknowledged
	// On SQLite: MustExist creates no file, and ReadOnly besides needs only the
	// right to read it. The other databases are never created, and decide by
	// their user what may be written.
	MustExist, ReadOnly bool
}

// OpenStore opens the store that the URL names. Its errors do not show the URL.
func OpenStore(ctx context.Context, p StoreParams) (Store, error) {
	scheme, rest, _ := strings.Cut(p.URL, ":")
	// A password with a slash that is not escaped ends there, and what follows
	// would be looked up as a host.
	if u, err := url.Parse(p.URL); scheme != "sqlite" && (err != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@")) {
		return nil, errors.New("the store's URL cannot be read; in a password %, /, ?, #, @ and : are written %25, %2F, %3F, %23, %40 and %3A")
	}
	switch scheme {
	case "sqlite":
		return sqlite.Open(sqlite.Config{
			Path: rest, Consumer: p.Consumer, AllowUnsafe: p.AllowUnsafe, MustExist: p.MustExist, ReadOnly: p.ReadOnly,
		})
	case "postgres", "postgresql":
		return postgres.Open(ctx, postgres.Config{URL: p.URL, AllowUnsafe: p.AllowUnsafe})
	case "mysql":
		return mysql.Open(ctx, mysql.Config{URL: p.URL, AllowUnsafe: p.AllowUnsafe})
	}
	return nil, fmt.Errorf("the store's URL must begin with sqlite:, postgres:// or mysql://")
}
