package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/rueidis"
)

// PgBouncer makes a database on the PostgreSQL of the environment and returns a URL that leads to it through the
// pgbouncer of the environment: transaction pooling, no prepared statements, no parameters at startup.
func PgBouncer(t testing.TB) string {
	t.Helper()
	raw := fromEnvironment(t, EnvPgBouncer)
	through, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("reading the URL in %s: %v", EnvPgBouncer, err)
	}
	version, err := pgbouncerVersion(*through)
	if err != nil {
		t.Fatalf("a pgbouncer is needed whose console answers, is it started? %v", err)
	}
	t.Logf("through: %s", version)

	database, err := url.Parse(Postgres(t))
	if err != nil {
		t.Fatalf("reading the URL of the test's database: %v", err)
	}
	through.Path = database.Path
	return through.String()
}

// pgbouncerVersion asks the console, a database that only a pgbouncer has.
func pgbouncerVersion(u url.URL) (version string, err error) {
	query := u.Query()
	query.Set("default_query_exec_mode", "simple_protocol") // the console knows no other
	u.Path, u.RawQuery = "/pgbouncer", query.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		return "", fmt.Errorf("opening the URL of the console: %w", err)
	}
	defer db.Close() //nolint:errcheck // nothing is kept there
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = db.QueryRowContext(ctx, "SHOW VERSION").Scan(&version)
	return version, err
}

// Redis returns the URL of the Redis of the environment. All tests share it: each keeps to keys that nobody else
// can have, and wipes nothing. A test that needs more takes Own(t, "redis").
func Redis(t testing.TB) string {
	t.Helper()
	raw := fromEnvironment(t, EnvRedis)
	option, err := rueidis.ParseURL(raw)
	if err != nil {
		t.Fatalf("reading the URL in %s: %v", EnvRedis, err)
	}
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("Redis does not answer, is it started? %v", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		t.Fatalf("asking Redis for its version: %v", err)
	}
	_, after, found := strings.Cut(info, "redis_version:")
	if !found {
		t.Fatalf("a Redis is needed, the server in %s says: %s", EnvRedis, info)
	}
	version, _, _ := strings.Cut(after, "\r\n")
	t.Logf("Redis %s", version)
	return raw
}
