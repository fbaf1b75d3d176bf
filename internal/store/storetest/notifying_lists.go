package storetest

import (
	"slices"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func deliveryLists(c *center) {
	c.alone("each filter lists its deliveries, page by page", pagesOfDeliveries)
	c.alone("a list is bounded in time", deliveriesInTime)
	c.run("pages neither repeat nor lose a delivery while others move", deliveriesWhileMoving)
	c.run("a page without a limit, and a status that does not exist", func(c *center) {
		for _, p := range []model.DeliveryListParams{{}, {Limit: -1}, {Limit: 1, Status: "LOST"}, {Limit: 1, Status: "pending"}} {
			_, err := c.ListDeliveries(c.ctx(), p)
			c.wantCode(err, model.CodeInvalid)
		}
	})
	c.alone("IN-05 lists of messages hold no deliveries, and do not break", messagesBesideDeliveries)
}

// allDeliveries reads a list to its end.
func (c *center) allDeliveries(p model.DeliveryListParams) (items []model.DeliveryView) {
	c.Helper()
	for {
		page, err := c.ListDeliveries(c.ctx(), p)
		c.must(err)
		items = append(items, page.Items...)
		if len(page.Items) > p.Limit {
			c.Fatalf("a page of %d has %d deliveries", p.Limit, len(page.Items))
		}
		if page.Next == 0 {
			return items
		}
		if len(page.Items) != p.Limit {
			c.Fatalf("a page of %d has %d deliveries, and there is another", p.Limit, len(page.Items))
		}
		p.Before = page.Next
	}
}

func pagesOfDeliveries(c *center) {
	owner := c.instance()
	channels := []model.Source{c.channel(), c.channel(), c.channel()} // the last one stays empty
	var made []model.DeliveryView
	for i, channel := range channels[:2] {
		for range i + 1 {
			for _, p := range c.everyStatus(channel, owner) {
				view, _ := c.delivery(p.id)
				made = append(made, view)
			}
			// The waiting ones are picked by those that are made next.
			for _, w := range c.pickStarted(channel.ID, owner, 5) {
				c.end(model.SettleFailed, w)
			}
		}
		for _, state := range parcelMakers {
			if state.name == "RETRY_WAIT" || state.name == "PENDING" {
				p := &parcel{channel: channel, owner: owner}
				state.make(c, p)
				view, _ := c.delivery(p.id)
				made = append(made, view)
				c.change(`UPDATE posthouse_work SET due_at = due_at + %d WHERE seq = %d`, hour, view.Seq)
			}
		}
	}
	for i, v := range made {
		made[i], _ = c.delivery(v.ID)
	}
	slices.SortFunc(made, func(a, b model.DeliveryView) int { return int(b.Seq - a.Seq) })
	for _, status := range append(model.DeliveryStatuses(), "") {
		for _, channel := range append(channels, model.Source{}) {
			var want []model.DeliveryView
			for _, v := range made {
				if (status == "" || v.Status == status) && (channel.ID == 0 || v.Channel == nameOf(channel)) {
					want = append(want, v)
				}
			}
			if channel.ID == 0 && len(want) < 2 {
				c.Errorf("only %d are %s", len(want), status)
			}
			for _, limit := range []int{3, 500} {
				got := c.allDeliveries(model.DeliveryListParams{Status: status, Channel: channel.ID, Limit: limit})
				c.same(string(status)+" of "+channel.Name, want, got)
			}
		}
	}
	for _, source := range []model.SourceID{c.source(), 9999} {
		if got := c.allDeliveries(model.DeliveryListParams{Channel: source, Limit: 5}); len(got) != 0 {
			c.Errorf("of source %d are listed %+v", source, got)
		}
	}
}

func deliveriesInTime(c *center) {
	channel, other, owner := c.channel(), c.channel(), c.instance()
	var times []model.Micros // of each batch
	var made []model.DeliveryView
	for batch := range 5 {
		var requests []model.NewRequest
		c.eventually("another time", func() bool { // two batches may share none
			requests = nil
			for range 4 {
				requests = append(requests, c.request("u1", channel, other))
			}
			c.accept(requests...)
			at := c.view(requests[0].ID).AcceptedAt
			if batch > 0 && at <= times[batch-1] {
				return false
			}
			times = append(times, at)
			return true
		})
		for _, r := range requests {
			made = append(made, c.view(r.ID).Deliveries...)
		}
		c.end(model.SettleFailed, c.pickStarted(channel.ID, owner, 1)...)
		c.end(model.SettleSuccess, c.pickStarted(other.ID, owner, 2)...)
	}
	for i, v := range made {
		made[i], _ = c.delivery(v.ID)
	}
	slices.SortFunc(made, func(a, b model.DeliveryView) int { return int(b.Seq - a.Seq) })
	bounds := []model.Micros{0, times[1], times[3], times[4] + 1, times[4] + 24*hour}
	for _, status := range []model.DeliveryStatus{"", model.DeliveryFailed, model.DeliverySucceeded} {
		for _, of := range []model.SourceID{0, channel.ID} {
			for _, from := range bounds {
				for _, to := range bounds {
					var want []model.DeliveryView
					for _, v := range made {
						if v.CreatedAt >= from && (to == 0 || v.CreatedAt < to) && (status == "" || v.Status == status) &&
							(of == 0 || v.Channel == nameOf(channel)) {
							want = append(want, v)
						}
					}
					got := c.allDeliveries(model.DeliveryListParams{Status: status, Channel: of, From: from, To: to, Limit: 7})
					c.same("in time", want, got)
				}
			}
		}
	}
}

func deliveriesWhileMoving(c *center) {
	channel, owner := c.channel(), c.instance()
	c.send(channel, 20)
	seen := map[uuid.UUID]int{}
	p := model.DeliveryListParams{Channel: channel.ID, Limit: 4}
	for {
		page, err := c.ListDeliveries(c.ctx(), p)
		c.must(err)
		for _, item := range page.Items {
			seen[item.ID]++
		}
		if page.Next == 0 {
			break
		}
		p.Before = page.Next
		c.send(channel, 3)
		c.end(model.SettleSuccess, c.pickStarted(channel.ID, owner, 2)...)
	}
	if len(seen) != 20 {
		c.Errorf("%d deliveries were seen, want the 20 that were there", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			c.Errorf("%v was seen %d times", id, n)
		}
	}
}

func messagesBesideDeliveries(c *center) {
	channel, owner := c.channel(), c.instance()
	source := c.source()
	c.everyStatus(channel, owner)
	made := c.everyState(source, owner, 3)
	c.everyStatus(c.channel(), owner)
	for name, filter := range filters {
		for _, of := range []model.SourceID{0, source} {
			for _, limit := range []int{1, 2, 100} {
				var got []uuid.UUID
				for _, item := range c.all(model.ListParams{Source: of, Filter: filter, Limit: limit}) {
					got = append(got, item.ID)
				}
				want := slices.Clone(made[name])
				for _, ids := range [][]uuid.UUID{want, got} {
					slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
				}
				c.same(name, want, got)
			}
		}
		if got := c.all(model.ListParams{Source: channel.ID, Filter: filter, Limit: 5}); len(got) != 0 {
			c.Errorf("%s of a channel: %+v", name, got)
		}
	}
	if n := c.number(`SELECT count(*) FROM posthouse_message_log`); n != int64(len(made["any"])) {
		c.Errorf("the log has %d messages, want %d", n, len(made["any"]))
	}
	requests, _ := c.send(channel, 1)
	_, _, err := c.Message(c.ctx(), requests[0].Deliveries[0].ID)
	c.wantCode(err, model.CodeNotFound)
	_, _, err = c.Delivery(c.ctx(), made["any"][0])
	c.wantCode(err, model.CodeNotFound)
}
