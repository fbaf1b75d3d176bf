package storetest

import (
	"database/sql"
	"strings"
	"testing"
)

// Harness tells the suite how to reach one database.
type Harness struct {
	// Engine is the product that must be reached, "SQLite", "PostgreSQL",
	// "MariaDB" or "MySQL": Version must name it.
	Engine string
	// Version asks the database itself what it is, "MariaDB 10.11.6".
	Version func(t *testing.T, s Store) string
	// Open returns a store on a database of its own, migrated and empty, which
	// is closed and removed when t ends.
	Open func(t *testing.T) Store
	// OpenEmpty is Open without the migration.
	OpenEmpty func(t *testing.T) Store
	// Again returns a second store on the database of s, with connections of
	// its own, as another process would have. It is closed when t ends.
	Again func(t *testing.T, s Store) Store
	// DB runs raw SQL on the database of s: for what the contract does not
	// show (views) or a test cannot wait for (a schema from the future). The
	// suite only uses SQL that every engine understands, without arguments.
	DB func(t *testing.T, s Store) *sql.DB
	// Lock stops every writer of posthouse_message, as an operator's or a
	// backup's lock does (BEGIN EXCLUSIVE, LOCK TABLE … ACCESS EXCLUSIVE, LOCK
	// TABLES … WRITE), from a connection of its own, until release is called.
	Lock func(t *testing.T, s Store) (release func())
	// FewHistories runs fewer of the random histories: another harness runs them
	// on the same statements.
	FewHistories bool
}

// Run proves the contract on the database of h. Nothing is skipped.
func Run(t *testing.T, h Harness) {
	t.Run("engine", h.engine)
	t.Run("schema", h.schema)
	for _, topic := range []struct {
		name string
		test func(*kit)
	}{
		{"putting", putting},
		{"deduplication", deduplication},
		{"transitions", transitions},
		{"claiming", claiming},
		{"slots", slots},
		{"blocking", blocking},
		{"replaying", replaying},
		{"instances", instances},
		{"leases", leases},
		{"partitions", partitions},
		{"agreeing", agreeing},
		{"orphans", orphans},
		{"listing", listing},
		{"calls", calls},
	} {
		t.Run(topic.name, func(t *testing.T) { topic.test(h.kit(t)) })
	}
	t.Run("IN-04 random histories agree with the oracle", h.property)
}

func (h Harness) engine(t *testing.T) {
	version := h.Version(t, h.Open(t))
	t.Logf("engine reached: %s", version)
	if !strings.Contains(strings.ToLower(version), strings.ToLower(h.Engine)) {
		t.Errorf("reached %q, want %s", version, h.Engine)
	}
}
