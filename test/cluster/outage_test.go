package cluster

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// backWithin is how soon after the database's return consuming must go on: a
// polling interval, and on top the longest pause between two tries of an
// outcome that waits to be written.
const backWithin = roundInterval + 2*time.Second

// operator is who does to a database what operators, or their accidents, do.
type operator struct {
	t     *testing.T
	store string // URL, as the product has it
	admin *sql.DB
	// others lists the numbers of the product's sessions; where narrows them.
	others func(where string) string
	kill   string // ends the session %d
	listen string // narrows to sessions that listen; empty: there are none
	// readOnly makes the server a standby, and back.
	readOnly map[bool]string
}

var operators = map[string]func(*testing.T) *operator{
	"PostgreSQL": func(t *testing.T) *operator {
		t.Helper()
		o := &operator{t: t, store: testdb.Postgres(t), listen: " AND query ILIKE 'LISTEN%'", kill: "SELECT pg_terminate_backend(%d)"}
		name := nameOf(t, o.store)
		o.open(os.Getenv(testdb.EnvPostgres))
		o.others = func(where string) string {
			return fmt.Sprintf("SELECT pid FROM pg_stat_activity WHERE datname = '%s' AND backend_type = 'client backend'%s", name, where)
		}
		o.readOnly = map[bool]string{
			true:  fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", name),
			false: fmt.Sprintf("ALTER DATABASE %s RESET default_transaction_read_only", name),
		}
		return o
	},
	"MariaDB": func(t *testing.T) *operator {
		t.Helper()
		own := testdb.Own(t, "mariadb")
		o := &operator{t: t, kill: "KILL %d"}
		o.open(own.URL)
		// An administrator may write to a server that is read-only; the product shall
		// not.
		name := nameOf(t, own.URL)
		o.exec("CREATE USER 'product'@'127.0.0.1' IDENTIFIED BY 'product'")
		o.exec(fmt.Sprintf("GRANT ALL PRIVILEGES ON %s.* TO 'product'@'127.0.0.1'", name))
		u, err := url.Parse(own.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("product", "product")
		o.store = u.String()
		o.others = func(where string) string {
			return "SELECT id FROM information_schema.processlist WHERE user = 'product'" + where
		}
		o.readOnly = map[bool]string{true: "SET GLOBAL read_only = ON", false: "SET GLOBAL read_only = OFF"}
		return o
	},
}

func (o *operator) open(admin string) {
	o.t.Helper()
	db, err := running.Open(admin, "")
	if err != nil {
		o.t.Fatal(err)
	}
	o.admin = db
	o.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			o.t.Error(err)
		}
	})
}

func (o *operator) exec(statement string) {
	o.t.Helper()
	if _, err := o.admin.ExecContext(context.Background(), statement); err != nil {
		o.t.Fatalf("%s: %v", statement, err)
	}
}

// disconnect ends the product's sessions, those that where narrows to.
func (o *operator) disconnect(where string) (n int) {
	o.t.Helper()
	rows, err := o.admin.QueryContext(context.Background(), o.others(where))
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	var sessions []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			o.t.Fatal(err)
		}
		sessions = append(sessions, id)
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	for _, id := range sessions {
		// One may have ended by itself meanwhile.
		if _, err := o.admin.ExecContext(context.Background(), fmt.Sprintf(o.kill, id)); err == nil {
			n++
		}
	}
	return n
}

func (o *operator) awaitListening(sessions int) {
	o.t.Helper()
	running.Eventually(o.t, 10*time.Second, "all instances listen", func() error {
		var n int
		if err := o.admin.QueryRowContext(o.t.Context(), "SELECT count(*) FROM ("+o.others(o.listen)+") sessions").Scan(&n); err != nil {
			return err
		}
		if n != sessions {
			return fmt.Errorf("%d sessions listen, want %d", n, sessions)
		}
		return nil
	})
}

// Whatever happens to the database, consuming goes on by itself when it is
// back; nothing is lost, and nothing is executed twice, since nobody died.
func TestTheDatabaseFailsAndReturns(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "AC-9", engines, runDatabaseFails)
}

func runDatabaseFails(t *testing.T, e running.Engine) {
	o := operators[e.Name](t)
	target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
		rest(ctx, takesATime(x.Number))
		return http.StatusOK
	})
	cfg := running.Config{Store: o.store, Sources: []running.Source{
		{Name: "serial", Order: "serial", Target: target.URL, MaxRetry: 50, RoundInterval: roundInterval}, keyedSource(target),
		{Name: "parallel", Order: "parallel", Target: target.URL, MaxRetry: 50, RoundInterval: roundInterval},
	}}
	c := launch(t, 3, cfg)
	c.awaitShared("orders", partitions)
	sources := []string{"serial", "orders", "parallel"}
	load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: sources, Connections: 18, Pause: 80 * time.Millisecond})
	feed(t, load, target, 60)
	awaitCount(t, target, 300)

	// goesOn waits until every source is worked on again, and says how long after
	// the return that was.
	goesOn := func(t *testing.T, back time.Time) {
		t.Helper()
		var slowest time.Duration
		for _, source := range sources {
			running.Eventually(t, 30*time.Second, "source "+source+" is worked on again", func() error {
				for _, x := range target.Record() {
					if x.Source == source && x.At.After(back) {
						slowest = max(slowest, x.At.Sub(back))
						return nil
					}
				}
				return errNotYet
			})
		}
		t.Logf("every source was worked on again %v after the database's return", slowest.Round(time.Millisecond))
		if slowest > backWithin+haste {
			t.Errorf("it took %v, want at most %v", slowest, backWithin)
		}
		awaitCount(t, target, 100)
	}

	t.Run("AC-9 all connections lost, again and again", func(t *testing.T) {
		var back time.Time
		ended := 0
		for i := range scale(15, 300) {
			ended += o.disconnect("")
			back = time.Now()
			<-time.After(time.Duration(50+i%7*40) * time.Millisecond) // there is work in every state
		}
		t.Logf("%d connections ended", ended)
		goesOn(t, back)
	})
	if o.listen != "" {
		t.Run("AC-9 the sessions that listen lost", func(t *testing.T) {
			o.awaitListening(len(c.all))
			t.Logf("%d sessions ended", o.disconnect(o.listen))
			from := time.Now()
			awaitCount(t, target, 100)
			gap := longestGap(target.Record(), from, time.Now())
			t.Logf("the longest pause between two executions was %v", gap.Round(time.Millisecond))
			if gap > roundInterval+haste {
				t.Errorf("nothing was executed for %v, want at most a polling interval", gap)
			}
			o.awaitListening(len(c.all))
		})
	}
	t.Run("AC-9 every connection is stuck", func(t *testing.T) {
		var release func() error
		running.Eventually(t, 10*time.Second, "all is locked", func() (err error) { // a deadlock may end a try
			release, err = running.LockTables(t.Context(), o.store, "posthouse_work", "posthouse_instance", "posthouse_source", "posthouse_lease")
			return err
		})
		<-time.After(time.Duration(scale(3, 30)) * time.Second)
		back := time.Now()
		if err := release(); err != nil {
			t.Fatal(err)
		}
		goesOn(t, back)
	})
	t.Run("AC-9 failover to a standby that is read-only, and back", func(t *testing.T) {
		o.exec(o.readOnly[true])
		o.disconnect("")
		<-time.After(time.Duration(scale(4, 30)) * time.Second)
		o.exec(o.readOnly[false])
		o.disconnect("")
		goesOn(t, time.Now())
	})
	load.End()
	c.all[0].WaitHandled()
	for _, s := range c.all {
		s.WaitReady()
	}
	c.stop()
	running.Audit{Store: cfg.Store, Load: load, Target: target, Serial: []string{"serial"}}.Run(t)
	t.Run("IN-22 each key in order", func(t *testing.T) {
		keyOrder{Source: "orders", KeyOf: keyOf, Pushes: load.Record(), Executions: target.Record(), Block: true}.run(t)
	})
}
