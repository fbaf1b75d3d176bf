package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/email"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/delivery"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
	"github.com/posthouse/posthouse/internal/store/mysql"
	"github.com/posthouse/posthouse/internal/store/postgres"
	"github.com/posthouse/posthouse/internal/store/sqlite"
	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/template/samples"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// deliveryStore is what accepting and carrying out need of a store.
type deliveryStore interface {
	workqueue.Store
	notify.Store
	delivery.Store
	MigrateUp(ctx context.Context) ([]int, error)
	Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error)
	Close() error
}

func openDeliveryStore(ctx context.Context, db *database) (deliveryStore, error) {
	switch db.name {
	case "postgres":
		return postgres.Open(ctx, postgres.Config{URL: db.url, MaxConns: connections})
	case "mariadb":
		return mysql.Open(ctx, mysql.Config{URL: db.url, MaxConns: connections})
	default:
		return sqlite.Open(sqlite.Config{Path: db.path, Consumer: true})
	}
}

// sent is a sender that sends nothing, and wants to have been given a mail.
type sent struct {
	handled *handled
	empty   atomic.Int64
}

func (s *sent) Send(_ context.Context, m channel.Message) channel.Result {
	if m.Address == "" || m.Subject == "" || m.HTML == "" {
		s.empty.Add(1)
	}
	s.handled.one()
	return channel.Result{Class: model.ClassSuccess}
}

func (s *sent) Close() error { return nil }

// deliveryQueue is notifications that were accepted as they are in production, each
// with one mail, and whoever carries them out.
type deliveryQueue struct {
	store   deliveryStore
	sender  *sent
	queue   model.SourceID
	center  *notify.Center
	engine  *workqueue.Engine
	carrier *delivery.Carrier
}

func openDeliveries(ctx context.Context, db *database, h *handled) (queue, error) {
	s, err := openDeliveryStore(ctx, db)
	if err != nil {
		return nil, err
	}
	q := &deliveryQueue{store: s, sender: &sent{handled: h}}
	if err := q.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return q, nil
}

func (q *deliveryQueue) open(ctx context.Context) error {
	if _, err := q.store.MigrateUp(ctx); err != nil {
		return err
	}
	policy := delivery.Retry{}.Policy(model.UncertainResend)
	queues, err := q.store.Register(ctx, []model.SourceSpec{delivery.SpecOf("mail", policy)})
	if err != nil {
		return err
	}
	q.queue = queues[0].ID
	ring, err := config.ParseKeys(config.GenerateKey("bench"))
	if err != nil {
		return err
	}
	set, problems := template.Load(samples.FS())
	if len(problems) > 0 {
		return errors.New(problems[0].String())
	}
	q.center, err = notify.New(notify.Config{
		Store: q.store, Templates: set, Ring: ring,
		Channels: []notify.Channel{{Name: "mail", Queue: q.queue, Kind: template.KindEmail, AddressKind: "email", Addresses: email.Addresses{}}},
		Policies: []notify.Policy{{Send: []string{"mail"}}},
	})
	if err != nil {
		return err
	}
	q.center.Start()
	if q.engine, err = workqueue.New(workqueue.Config{Store: q.store}); err != nil {
		return err
	}
	q.carrier, err = delivery.New(delivery.Config{
		Store: q.store, Ring: ring, Engine: q.engine,
		Channels: []delivery.Channel{{
			Name: "mail", Kind: "email", Queue: queues[0], Sender: q.sender, Policy: policy,
			Concurrency: concurrency, BatchSize: batchSize,
		}},
	})
	if err != nil {
		return err
	}
	for _, c := range q.carrier.Queues() {
		if err := q.engine.Add(c); err != nil {
			return err
		}
	}
	return nil
}

// submitters is how many submit notifications at once.
const submitters = 512

func (q *deliveryQueue) fill(ctx context.Context, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	for i := range n {
		g.Go(func() error {
			_, err := q.center.Accept(ctx, submission(i))
			return err
		})
	}
	return g.Wait()
}

func submission(number int) notify.Submission {
	return notify.Submission{
		IdempotencyKey: fmt.Sprintf("approval:%08d:assignee:v1", number), BizType: "approval.todo", Template: "approval_todo", Locale: "en",
		Recipient: notify.Recipient{ID: customer(number), Addresses: map[string]string{"email": customer(number) + "@example.com"}},
		Variables: json.RawMessage(fmt.Sprintf(`{"title":"Travel to Shenzhen, %d","applicant":"Li Lei","url":"https://oa.example.com/approvals/%d","amount":1280.50}`, number, number)),
	}
}

func (q *deliveryQueue) start(ctx context.Context) error {
	q.carrier.Start()
	return q.engine.Start(ctx)
}

func (q *deliveryQueue) stats(ctx context.Context) (model.SourceStats, error) {
	all, err := q.store.Stats(ctx)
	for _, s := range all {
		if s.Source.ID == q.queue {
			return s, nil
		}
	}
	return model.SourceStats{}, errors.Join(err, errors.New("the channel is not there"))
}

func (q *deliveryQueue) done(ctx context.Context) (int, error) {
	s, err := q.stats(ctx)
	if empty := q.sender.empty.Load(); err == nil && empty > 0 {
		err = fmt.Errorf("%d mails lacked something", empty)
	}
	return int(s.Success), err
}

func (q *deliveryQueue) busy(ctx context.Context) (bool, error) {
	s, err := q.stats(ctx)
	return s.Pending+s.Retrying+s.Processing+s.Dead+s.Uncertain > 0, err
}

func (q *deliveryQueue) stop(context.Context) error {
	q.engine.Stop()
	q.center.Stop()
	q.carrier.Stop()
	return q.store.Close()
}
