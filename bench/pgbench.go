package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findPgbench finds the load generator that comes with PostgreSQL.
func findPgbench() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err != nil || len(found) == 0 {
		return "", errors.New("pgbench is not installed: it comes with PostgreSQL")
	}
	return slices.Max(found), nil
}

// sample is a notification as it is kept: what each row that pgbench inserts is
// a copy of, but for numbers, ids and keys.
type sample struct {
	contentKey, bizType, template, priority, locale, tags, success, choices, variables string
	content                                                                            []byte
	title, body                                                                        string
	deliveries                                                                         []sampleDelivery
}

type sampleDelivery struct {
	channel, template                    int
	done                                 bool
	locale, reason, masked, key, address string // address in hexadecimal
}

// sampled reads the notification that was kept last.
func (d *database) sampled(ctx context.Context) (s sample, err error) {
	err = d.ask(d.url, func(db *sql.DB) error {
		var seq int64
		err := db.QueryRowContext(ctx, `SELECT seq, content_key, content, biz_type, template, priority, locale, tags, success, choices, variables
			FROM posthouse_request ORDER BY seq DESC LIMIT 1`).
			Scan(&seq, &s.contentKey, &s.content, &s.bizType, &s.template, &s.priority, &s.locale, &s.tags, &s.success, &s.choices, &s.variables)
		if err != nil {
			return err
		}
		err = db.QueryRowContext(ctx, `SELECT title, body FROM posthouse_user_message WHERE request = $1`, seq).Scan(&s.title, &s.body)
		if err != nil {
			return err
		}
		rows, err := db.QueryContext(ctx, `SELECT channel, template, done, locale, reason, masked, address_key, encode(address, 'hex')
			FROM posthouse_delivery WHERE request = $1 ORDER BY seq`, seq)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err tells
		for rows.Next() {
			var v sampleDelivery
			if err := rows.Scan(&v.channel, &v.template, &v.done, &v.locale, &v.reason, &v.masked, &v.key, &v.address); err != nil {
				return err
			}
			s.deliveries = append(s.deliveries, v)
		}
		return rows.Err()
	})
	if err == nil && len(s.deliveries) != 2 {
		err = fmt.Errorf("the sample has %d deliveries", len(s.deliveries))
	}
	return s, err
}

// literal is a text that pgbench finds no variable in.
func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, `:`, `\x3a`).Replace(s) + "'"
}

// script inserts copies of a notification, so many in a transaction, each with
// the same columns in the same tables as the product: a statement for each
// table, all sent at once. Ids ascend, as the product's do.
func (s sample) script(batch int) string {
	const (
		// seq is the number of a row's request; clients have ranges of their own.
		seq   = `(:base::bigint + g)`
		id    = `(E'01900000-0000-7000-%s-' || lpad(to_hex(%s), 12, '0'))::uuid`
		user  = `'u' || (` + seq + ` * 7919 %% %d)`
		clock = `(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`
		first = `4611686018427387904`
	)
	rows := fmt.Sprintf(`generate_series(1, %d) g`, batch)
	recipient := fmt.Sprintf(user, recipients)
	var values []string
	for i, d := range s.deliveries {
		values = append(values, fmt.Sprintf(`(%d, %d, %d, %t, %s, %s, %s, %s, decode('%s', 'hex'))`, i, d.channel, d.template, d.done,
			literal(d.locale), literal(d.reason), literal(d.masked), literal(d.key), d.address))
	}
	sent, kept := 0, 1 // places of the delivery that is done, and of the one that is not
	if !s.deliveries[0].done {
		sent, kept = 1, 0
	}
	var b strings.Builder
	fmt.Fprintf(&b, `\set n :n + 1
\set base :client_id * 100000000 + :n * %d
\startpipeline
BEGIN;
`, batch)
	fmt.Fprintf(&b, `INSERT INTO posthouse_request (seq, accepted_at, not_before, expires_at, secret, cancelled, id, idem_key, content_key, content,
	biz_type, template, recipient, priority, locale, tags, success, choices, variables)
	SELECT %s, %s, 0, 0, false AS secret, false AS cancelled, %s, convert_to(%s || %s || %s, 'UTF8'), %s, decode('%s', 'hex'), %s, %s, %s, %s, %s, %s, %s, %s, %s FROM %s;
`, seq, clock, fmt.Sprintf(id, "8000", seq), literal("approval:"), seq, literal(":assignee:v1"), literal(s.contentKey), hex.EncodeToString(s.content),
		literal(s.bizType), literal(s.template), recipient, literal(s.priority), literal(s.locale), literal(s.tags), literal(s.success), literal(s.choices), literal(s.variables), rows)
	fmt.Fprintf(&b, `WITH users AS (
		INSERT INTO posthouse_user AS u (user_id, last_seq) SELECT user_id COLLATE "C", 1 FROM (SELECT %s AS user_id FROM %s) w ORDER BY user_id COLLATE "C"
		ON CONFLICT (user_id) DO UPDATE SET last_seq = u.last_seq + excluded.last_seq RETURNING user_id, last_seq
	), numbered AS (SELECT user_id, last_seq, row_number() OVER () AS g FROM users)
	INSERT INTO posthouse_user_message (user_id, seq, request, created_at, read_at, id, title, body)
	SELECT user_id, last_seq, %s, %s, 0, %s, %s, %s FROM numbered;
`, recipient, rows, seq, clock, fmt.Sprintf(id, "9000", seq), literal(s.title), literal(s.body))
	fmt.Fprintf(&b, `INSERT INTO posthouse_delivery (seq, request, created_at, channel, template, purpose, done, id, locale, reason, masked, address_key, address)
	SELECT %s + 2 * %s + c.n, %s, %s, c.channel, c.template, 0, c.done, %s, c.locale, c.reason, c.masked, c.key, c.address
	FROM %s CROSS JOIN (VALUES %s) c (n, channel, template, done, locale, reason, masked, key, address);
`, first, seq, seq, clock, fmt.Sprintf(id, "a000", "2 * "+seq+" + c.n"), rows, strings.Join(values, ", "))
	fmt.Fprintf(&b, `INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
	SELECT %s + 2 * %s + %d, %s, 0, 0, 0, %d, 0, 0, 0, 0 FROM %s;
`, first, seq, kept, clock, s.deliveries[kept].channel, rows)
	fmt.Fprintf(&b, `INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
	SELECT %s + 2 * %s + %d, 0, %s, %d, 0, 0, 0, 0 FROM %s;
COMMIT;
\endpipeline
`, first, seq, sent, clock, s.deliveries[sent].channel, rows)
	return b.String()
}

// backendCPU is how much processor the processes have used that serve the
// database now; 0 where the server runs elsewhere. What writes the log and
// checkpoints is not in it.
func (d *database) backendCPU(ctx context.Context) (cpu time.Duration, err error) {
	err = d.ask(d.url, func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err tells
		for rows.Next() {
			var pid int
			if err := rows.Scan(&pid); err != nil {
				return err
			}
			cpu += processCPU(pid)
		}
		return rows.Err()
	})
	return cpu, err
}

var pgbenchRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)`)

// inserted is one measurement of pgbench.
type inserted struct {
	perSecond   float64       // notifications
	databaseCPU time.Duration // per notification; as it was shortly before the end
}

// pgbench inserts copies of a sample into the tables of db.
func (b *bench) pgbench(ctx context.Context, db *database, s sample, clients, batch int) (in inserted, err error) {
	path := filepath.Join(b.work, "notifications.sql")
	if err := os.WriteFile(path, []byte(s.script(batch)), 0o600); err != nil {
		return in, fmt.Errorf("write pgbench's script: %w", err)
	}
	var cpu time.Duration
	var after time.Duration // since when
	for i, duration := range []time.Duration{b.warmUp, b.duration} {
		// Numbers begin where none of the warm-up is.
		cmd := exec.CommandContext(ctx, b.pgbenchPath, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, b.machine.Cores)), //nolint:gosec // the load generator, with our own numbers
			"-T", strconv.Itoa(int(duration.Round(time.Second).Seconds())), "-D", "n="+strconv.Itoa(i*100_000), "-f", path, db.url)
		began, looked := time.Now(), make(chan error, 1)
		time.AfterFunc(duration*9/10, func() {
			var err error
			cpu, err = db.backendCPU(ctx)
			after = time.Since(began)
			looked <- err
		})
		out, err := cmd.CombinedOutput()
		if err = errors.Join(err, <-looked); err != nil {
			return in, fmt.Errorf("pgbench: %w\n%s", err, out)
		}
		if i == 0 {
			continue
		}
		m := pgbenchRate.FindSubmatch(out)
		if m == nil {
			return in, fmt.Errorf("pgbench printed no result\n%s", out)
		}
		rate, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return in, fmt.Errorf("pgbench printed %q transactions a second", m[1])
		}
		in.perSecond = rate * float64(batch)
		in.databaseCPU = time.Duration(float64(cpu) / (after.Seconds() * in.perSecond))
	}
	n, err := db.count(ctx, "posthouse_request")
	if err != nil {
		return in, err
	}
	return in, db.holds(ctx, n)
}

// empty leaves the tables as they were before the first notification.
func (d *database) empty(ctx context.Context) error {
	return d.ask(d.url, func(db *sql.DB) error {
		for _, statement := range []string{
			`TRUNCATE posthouse_request, posthouse_user, posthouse_user_message, posthouse_delivery, posthouse_work, posthouse_outcome, posthouse_counted`,
			`VACUUM ANALYZE`, `CHECKPOINT`,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// bytesEach is what a notification takes, with indexes.
func (d *database) bytesEach(ctx context.Context) (each float64, err error) {
	err = d.ask(d.url, func(db *sql.DB) error {
		for table := range notificationTables {
			var bytes, rows float64
			err := db.QueryRowContext(ctx, `SELECT pg_total_relation_size('`+table+`'), (SELECT count(*) FROM posthouse_request)`).Scan(&bytes, &rows)
			if err != nil {
				return err
			}
			each += bytes / max(rows, 1)
		}
		return nil
	})
	return each, err
}
