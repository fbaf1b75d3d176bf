package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthouse/posthouse/internal/channel/email"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/delivery"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
	"github.com/posthouse/posthouse/internal/store/postgres"
	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/template/samples"
)

// recipients is how many users notifications are for.
const recipients = 10_000

// center is a notify.Center on a PostgreSQL, whose notifications have a user
// message and a mail. It sends nothing.
type center struct {
	*notify.Center
	store *counting
	next  atomic.Int64 // number of the next notification
}

// counting counts what is kept, and in how many transactions.
type counting struct {
	*postgres.Store
	calls, rows atomic.Int64
}

func (c *counting) PutRequests(ctx context.Context, requests []model.NewRequest) ([]model.PutRequest, error) {
	c.calls.Add(1)
	c.rows.Add(int64(len(requests)))
	return c.Store.PutRequests(ctx, requests)
}

func openCenter(ctx context.Context, url string) (c *center, err error) {
	s, err := postgres.Open(ctx, postgres.Config{URL: url})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if _, err := s.MigrateUp(ctx); err != nil {
		return nil, err
	}
	policy := delivery.Retry{}.Policy(model.UncertainResend)
	queues, err := s.Register(ctx, []model.SourceSpec{delivery.SpecOf("in_app", policy), delivery.SpecOf("mail", policy)})
	if err != nil {
		return nil, err
	}
	ring, err := config.ParseKeys(config.GenerateKey("bench"))
	if err != nil {
		return nil, err
	}
	set, problems := template.Load(samples.FS())
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	c = &center{store: &counting{Store: s}}
	c.Center, err = notify.New(notify.Config{
		Store: c.store, Templates: set, Ring: ring,
		Channels: []notify.Channel{
			{Name: "in_app", Queue: queues[0].ID, Kind: template.KindInApp, InApp: true},
			{Name: "mail", Queue: queues[1].ID, Kind: template.KindEmail, AddressKind: "email", Addresses: email.Addresses{}},
		},
		Policies: []notify.Policy{{Send: []string{"in_app", "mail"}}},
	})
	if err != nil {
		return nil, err
	}
	c.Start()
	return c, nil
}

func (c *center) close() error {
	c.Stop()
	return c.store.Close()
}

// The notification of a number, in parts that its key and its JSON share.
func notificationKey(number int64) string { return fmt.Sprintf("approval:%d:assignee:v1", number) }
func recipientOf(number int64) string     { return "u" + strconv.FormatInt(number*7919%recipients, 10) }

func variablesOf(number int64) json.RawMessage {
	return fmt.Appendf(nil, `{"title":"Travel to Shenzhen, %d","applicant":"Li Lei","url":"https://oa.example.com/approvals/%d","amount":1280.50}`, number, number)
}

func notificationOf(number int64) notify.Submission {
	recipient := recipientOf(number)
	return notify.Submission{
		IdempotencyKey: notificationKey(number), BizType: "approval.todo", Template: "approval_todo", Locale: "en",
		Recipient: notify.Recipient{ID: recipient, Addresses: map[string]string{"email": recipient + "@example.com"}},
		Variables: variablesOf(number),
	}
}

// accepted is one measurement of a Center.
type accepted struct {
	perSecond float64
	batch     float64       // notifications in a transaction, on average
	cpu       time.Duration // of this process, per notification
	// databaseCPU is that of the database's processes, per notification.
	databaseCPU time.Duration
}

// accept has so many callers submit notifications all the time, first to warm up
// and then for the measurement, and checks that all that was accepted is kept.
func (b *bench) accept(ctx context.Context, db *database, callers int, profile string) (a accepted, err error) {
	c, err := openCenter(ctx, db.url)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, err := c.submit(ctx, callers, b.warmUp); err != nil {
		return a, err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return a, err
		}
		defer func() { _ = f.Close() }() // pprof complains of what is cut off
		if err := pprof.StartCPUProfile(f); err != nil {
			return a, err
		}
		defer pprof.StopCPUProfile()
	}
	databaseCPU, err := db.backendCPU(ctx)
	if err != nil {
		return a, err
	}
	calls, rows, cpu, began := c.store.calls.Load(), c.store.rows.Load(), ownCPU(), time.Now()
	n, err := c.submit(ctx, callers, b.duration)
	if err != nil {
		return a, err
	}
	took := time.Since(began)
	a.perSecond, a.cpu = float64(n)/took.Seconds(), (ownCPU()-cpu)/time.Duration(n)
	afterwards, err := db.backendCPU(ctx)
	if err != nil {
		return a, err
	}
	a.databaseCPU = (afterwards - databaseCPU) / time.Duration(n)
	a.batch = float64(c.store.rows.Load()-rows) / float64(c.store.calls.Load()-calls)
	return a, db.holds(ctx, c.next.Load())
}

// submit returns how many were accepted.
func (c *center) submit(ctx context.Context, callers int, duration time.Duration) (int64, error) {
	first := c.next.Load()
	until := time.Now().Add(duration)
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for time.Now().Before(until) {
				r, err := c.Accept(ctx, notificationOf(c.next.Add(1)))
				if err != nil {
					return err
				}
				if r.Duplicate || len(r.Deliveries) != 2 {
					return fmt.Errorf("a new notification was accepted as %+v", r)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return c.next.Load() - first, err
}

// holds checks that n notifications are kept, with all that hangs on them.
func (d *database) holds(ctx context.Context, n int64) error {
	var errs []error
	for table, each := range notificationTables {
		rows, err := d.count(ctx, table)
		if err == nil && rows != n*each {
			err = fmt.Errorf("%d notifications were kept, but %s has %d rows", n, table, rows)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// notificationTables are where a notification is kept, with how many rows it has there.
var notificationTables = map[string]int64{
	"posthouse_request": 1, "posthouse_user_message": 1, "posthouse_delivery": 2, "posthouse_work": 1, "posthouse_outcome": 1,
}
