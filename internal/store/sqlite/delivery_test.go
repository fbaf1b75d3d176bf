package sqlite

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func TestListsOfDeliveriesWalkAnIndex(t *testing.T) {
	s, _ := ready(t)
	for _, status := range append(model.DeliveryStatuses(), "") {
		branch, args, err := deliveryBranch(status)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"channel", "first", "before", "from", "to", "limit"} {
			args = append(args, sql.Named(name, 1))
		}
		steps := plan(t, s, pageOfDeliveries+branch+ofChannels+showDeliveries, args...)
		for _, step := range steps {
			table, scans := strings.CutPrefix(step, "SCAN ")
			if scans && !slices.Contains([]string{"page", "c"}, table) {
				t.Errorf("%s: %s", status, step)
			}
		}
		// Only what waits or is processing is sorted: there is no index for it.
		waits := status == model.DeliveryPending || status == model.DeliveryRetryWait || status == model.DeliveryProcessing
		sorts := 0
		for _, step := range steps {
			if strings.Contains(step, "TEMP B-TREE") {
				sorts++
			}
		}
		if want := map[bool]int{false: 2, true: 3}[waits]; sorts != want { // the merge, and the page
			t.Errorf("%s sorts %d times, want %d:\n%s", status, sorts, want, strings.Join(steps, "\n"))
		}
	}
}

func TestHotStatementsOfNotificationsFindTheirRows(t *testing.T) {
	s, _ := ready(t)
	for name, query := range map[string]string{
		"NC-13 one delivery":       showStandings + ` WHERE d.id = ?`,
		"NC-21 those of a request": showStandings + ` WHERE d.request = ? ORDER BY d.seq`,
	} {
		for _, step := range plan(t, s, query, 1) {
			if strings.HasPrefix(step, "SCAN") {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
}

// history is a store with one channel and n deliveries, made a minute apart.
func history(t *testing.T, n int) (*Store, model.SourceID, model.Micros) {
	t.Helper()
	s, _ := ready(t)
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "channel/mail", Tenant: model.TenantDelivery, Wants: model.Ordering{Order: model.Parallel}}})
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]model.NewRequest, n)
	for i := range requests {
		id := uuid.Must(uuid.NewV7())
		requests[i] = model.NewRequest{ID: id, Key: id.String(), Deliveries: []model.NewDelivery{{ID: id, Channel: sources[0].ID}}}
	}
	if _, err := s.PutRequests(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	const start = model.Micros(1_700_000_000_000_000)
	if _, err := other(t, s).Exec(`UPDATE posthouse_delivery SET created_at = ? + (seq - ?) * 60000000`, start, model.DeliverySeqs); err != nil {
		t.Fatal(err)
	}
	return s, sources[0].ID, start
}

func TestAListOfALongHistoryIsBoundedInTime(t *testing.T) {
	const n = 500
	s, channel, start := history(t, n)
	for _, c := range []struct{ from, to int }{{0, n}, {3, 7}, {100, 101}, {250, n}, {n - 1, n}, {7, 3}, {n, n + 9}} {
		p := model.DeliveryListParams{Channel: channel, From: start.Add(time.Duration(c.from) * time.Minute), To: start.Add(time.Duration(c.to) * time.Minute), Limit: n}
		page, err := s.ListDeliveries(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(page.Items), max(0, min(c.to, n)-c.from); got != want || page.Next != 0 {
			t.Errorf("minutes %d to %d: %d deliveries, want %d", c.from, c.to, got, want)
		}
		for _, item := range page.Items {
			if item.CreatedAt < p.From || item.CreatedAt >= p.To {
				t.Errorf("minutes %d to %d: one of %d", c.from, c.to, item.CreatedAt)
			}
		}
	}
}
