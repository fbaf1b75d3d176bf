package notify

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/mysql"
	"github.com/posthouse/posthouse/internal/store/postgres"
	"github.com/posthouse/posthouse/internal/testdb"
)

// sharedStore is what two instances need of a store that they share.
type sharedStore interface {
	Store
	MigrateUp(ctx context.Context) ([]int, error)
	Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error)
	ListDeliveries(ctx context.Context, p model.DeliveryListParams) (model.DeliveryPage, error)
	UserMessages(ctx context.Context, user string, after int64, limit int) ([]model.UserMessage, error)
	Close() error
}

func TestAC1ConcurrentRepeatsAtTwoInstancesAreOneRequest(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) func() (sharedStore, error){
		"PostgreSQL": func(t *testing.T) func() (sharedStore, error) {
			url := testdb.Postgres(t)
			return func() (sharedStore, error) { return postgres.Open(t.Context(), postgres.Config{URL: url}) }
		},
		"MariaDB": func(t *testing.T) func() (sharedStore, error) {
			url := testdb.MariaDB(t)
			return func() (sharedStore, error) { return mysql.Open(t.Context(), mysql.Config{URL: url}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			again := open(t)
			k := newKit(t, nil) // its configuration is used, its store is not
			var centers []*Center
			var store sharedStore
			for range 2 {
				opened, err := again()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := opened.Close(); err != nil {
						t.Error(err)
					}
				})
				store = opened
				centers = append(centers, centerOn(t, k, store))
			}
			checkOneRequest(t, centers, store)
		})
	}
}

// centerOn makes the kit's Center anew on another store.
func centerOn(t *testing.T, k *kit, store sharedStore) *Center {
	t.Helper()
	if _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := k.cfg
	cfg.Store, cfg.Registerer, cfg.Channels = store, nil, append([]Channel{}, k.cfg.Channels...)
	for i := range cfg.Channels {
		queues, err := store.Register(t.Context(), []model.SourceSpec{{Name: model.ChannelPrefix + cfg.Channels[i].Name, Tenant: model.TenantDelivery, Enabled: true}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Channels[i].Queue = queues[0].ID
	}
	return k.center(t, cfg)
}

func checkOneRequest(t *testing.T, centers []*Center, store sharedStore) {
	t.Helper()
	const n, keys = 200, 4
	receipts, faults := make([]Receipt, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s := submission()
			s.IdempotencyKey = fmt.Sprintf("key-%d", i%keys)
			receipts[i], faults[i] = centers[i/keys%2].Accept(context.Background(), s)
		})
	}
	wg.Wait()
	fresh := 0
	for i, r := range receipts {
		if faults[i] != nil {
			t.Fatal(faults[i])
		}
		if !r.Duplicate {
			fresh++
		}
		first := receipts[i%keys]
		r.Duplicate = first.Duplicate
		if diff := cmp.Diff(first, r); diff != "" {
			t.Fatalf("answer %d differs (-first +this):\n%s", i, diff)
		}
	}
	page, err := store.ListDeliveries(t.Context(), model.DeliveryListParams{Limit: 500})
	if err != nil || fresh != keys || len(page.Items) != 2*keys {
		t.Errorf("%d were answered as the first, %d deliveries, %v", fresh, len(page.Items), err)
	}
	messages, err := store.UserMessages(t.Context(), "u1008", 0, 10)
	if err != nil || len(messages) != keys || messages[keys-1].Seq != keys {
		t.Errorf("%d user messages, %v", len(messages), err)
	}
}
