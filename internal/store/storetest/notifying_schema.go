package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// firstOfNotifications is the version of the schema that knows notifications.
const firstOfNotifications = 3

func (h Harness) notificationSchema(t *testing.T) {
	t.Run("a step back removes channels and all that is theirs, and nothing else", h.withoutNotifications)
	t.Run("IN-25 a ping notices that a table of notifications is missing", h.missingNotificationTable)
}

func (h Harness) withoutNotifications(t *testing.T) {
	c := h.center(t)
	source, owner := c.sourceWith(policy), c.instance()
	for range 2 {
		made := c.everyState(source.ID, owner, 2)
		inbox := []string{"message", "work", "outcome", "attempt"}
		before := map[string]int{}
		for _, table := range inbox {
			before[table] = int(c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_%s WHERE seq < %d`, table, model.DeliverySeqs)))
		}
		channel := c.channel()
		c.everyStatus(channel, owner)
		c.must(c.AddAudit(c.ctx(), model.AuditRecord{Actor: "ops", Action: "channel.test", Target: "channel/x"}))
		c.take(source.ID, owner)
		for {
			undone, err := c.MigrateDown(c.ctx())
			c.must(err)
			if undone == firstOfNotifications {
				break
			}
		}
		for _, table := range inbox {
			if n := len(c.lines(table)); n != before[table] {
				c.Errorf("%d rows of %s are left, want %d", n, table, before[table])
			}
		}
		for table, column := range map[string]string{"source": "id", "lease": "queue", "want": "queue", "key": "queue", "counter": "source", "work": "queue", "outcome": "source"} {
			if n := c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_%s WHERE %s = %d`, table, column, channel.ID)); n != 0 {
				c.Errorf("%d rows of %s are the channel's", n, table)
			}
		}
		for _, table := range append(slices.Clone(notificationTables), "message_request", "delivery_task") {
			var n int64
			if err := c.raw.QueryRowContext(c.ctx(), "SELECT count(*) FROM posthouse_"+table).Scan(&n); err == nil {
				c.Errorf("posthouse_%s is still there", table)
			}
		}
		if n := c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_message_log WHERE source = '%s'`, source.Name)); n != int64(before["message"]) {
			c.Errorf("the log has %d messages, want %d", n, before["message"])
		}
		_, err := c.MigrateUp(c.ctx())
		c.must(err)
		c.must(c.CheckReady(c.ctx()))
		for name, want := range map[string]model.State{"failed": model.Failed, "success": model.Success, "processing": model.Processing, "pending": model.Pending} {
			c.wantState(made[name][0], want)
		}
		sources, err := c.Sources(c.ctx())
		c.must(err)
		c.same("sources", []model.Source{source}, sources)
		// It works, and it is empty.
		c = centerOf(c.kit)
		r := c.seenBy(c.request("u1", c.channel()), c.channel())
		head := c.accept(r)[0]
		if head.Seq <= 0 || head.Deliveries[0].Seq < model.DeliverySeqs {
			c.Errorf("the first has the numbers %+v", head)
		}
		if records := c.records(""); len(records) != 0 {
			c.Errorf("records %+v", records)
		}
		c.end(model.SettleSuccess, c.pickStarted(r.Deliveries[0].Channel, owner, 1)...)
		c.wantStatus(r.Deliveries[0].ID, model.DeliverySucceeded)
		c.settle(model.SettleFailed, c.claimStarted(source.ID, owner, 100)...)
		if _, err := c.Request(c.ctx(), uuid.New()); model.CodeOf(err) != model.CodeNotFound {
			c.Error(err)
		}
	}
}

func (h Harness) missingNotificationTable(t *testing.T) {
	k := h.kit(t)
	db := h.DB(t, k.Store)
	rename := func(from, to string) {
		if _, err := db.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			k.Fatal(err)
		}
	}
	for _, name := range notificationTables {
		rename("posthouse_"+name, "moved_away")
		if err := k.Ping(k.ctx()); err == nil {
			k.Errorf("without posthouse_%s nothing is missing", name)
		}
		rename("moved_away", "posthouse_"+name)
	}
	k.must(k.Ping(k.ctx()))
}
