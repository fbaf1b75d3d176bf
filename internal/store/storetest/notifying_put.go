package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func puttingRequests(c *center) {
	c.run("NC-01 request, user message and deliveries are kept, each as it was given", wholeRequest)
	c.run("NC-01 a request without deliveries is kept", emptyRequest)
	c.run("NC-01 no second delivery of one request, channel and purpose can be kept", oneDeliveryEach)
	c.run("NC-21 a delivery that is done has succeeded with the insert, and is counted", doneAtInsert)
	c.run("a delivery is due at once, or not before its time", notBefore)
	c.run("odd texts come back", oddTexts)
	c.run("a request that is at fault is rejected with all others of its call", rejectedRequest)
	c.run("a put that is cut off at any moment keeps all or nothing", cutOffRequests)
	c.run("nothing is put", func(c *center) {
		if answers := c.answers(); len(answers) != 0 {
			c.Errorf("answers %+v", answers)
		}
		_, err := c.Request(c.ctx(), uuid.New())
		c.wantCode(err, model.CodeNotFound)
		_, _, err = c.Delivery(c.ctx(), uuid.New())
		c.wantCode(err, model.CodeNotFound)
		_, err = c.RequestByKey(c.ctx(), "nobody's")
		c.wantCode(err, model.CodeNotFound)
	})
}

// shown is a request as RequestView has it.
func shown(r model.NewRequest) model.NewRequest {
	r.Content, r.Sensitive, r.Message, r.Deliveries = model.Content{}, model.Sealed{}, nil, nil
	return r
}

func wholeRequest(c *center) {
	mail, text, inApp := c.channel(), c.channel(), c.channel()
	r := c.request("u-whole", text, mail)
	r.Priority, r.Locale, r.ExpiresAt = model.PriorityHigh, "zh-CN", 1<<52
	r.Tags = []string{"a", "", "b c"}
	r.Variables = json.RawMessage(`{"a": 1.50, "code": "•••", "nul": "\u0000", "text": "ü <b> \\"}`)
	r.Sensitive = model.Sealed{KeyID: "k2", Bytes: []byte("\x00\xffsealed'\\")}
	r.Success = model.Aggregate{All: []string{nameOf(inApp)}, Any: []string{nameOf(text), nameOf(mail)}}
	r.Deliveries[1].Purpose = model.PurposeFormerAddress
	r = c.seenBy(r, inApp)
	r.Choices = append(r.Choices, model.Choice{Channel: "fax", Skipped: true, Reason: "no address"})
	head := c.accept(r)[0]
	var seqs []model.Seq
	for i, d := range head.Deliveries {
		if d.Seq < model.DeliverySeqs || i > 0 && d.Seq <= seqs[i-1] {
			c.Errorf("delivery %d has the number %d", i, d.Seq)
		}
		seqs = append(seqs, d.Seq)
	}
	wantHead := model.RequestHead{ID: r.ID, Content: r.Content, Success: r.Success, Choices: r.Choices, Deliveries: []model.DeliveryHead{
		{ID: r.Deliveries[0].ID, Channel: nameOf(text), Reason: "policy 1"},
		{ID: r.Deliveries[1].ID, Channel: nameOf(mail), Purpose: model.PurposeFormerAddress, Reason: "policy 2"},
		{ID: r.Deliveries[2].ID, Channel: nameOf(inApp), Done: true, Reason: "always"},
	}}
	c.same("the answer", wantHead, head, cmpopts.IgnoreFields(model.RequestHead{}, "Seq"), cmpopts.IgnoreFields(model.DeliveryHead{}, "Seq"))
	found, err := c.RequestByKey(c.ctx(), r.Key)
	c.must(err)
	c.same("by its key", head, found)

	view := c.view(r.ID)
	c.same("the request", shown(r), view.Request)
	if view.Seq != head.Seq || view.AcceptedAt <= 0 || !view.Secret || view.Erased || view.Cancelled || len(view.Audit) != 0 {
		c.Errorf("shown as %+v", view)
	}
	common := model.DeliveryView{RequestID: r.ID, Recipient: "u-whole", Masked: "u•••@example.com", Locale: "fr",
		Status: model.DeliveryPending, NextAttemptAt: view.AcceptedAt, CreatedAt: view.AcceptedAt}
	want := []model.DeliveryView{common, common, common}
	for i, d := range head.Deliveries {
		want[i].Seq, want[i].ID, want[i].Channel, want[i].Purpose, want[i].Reason = d.Seq, d.ID, d.Channel, d.Purpose, d.Reason
	}
	want[2].Masked, want[2].Status, want[2].NextAttemptAt, want[2].FinishedAt = "", model.DeliverySucceeded, 0, view.AcceptedAt
	c.same("its deliveries", want, view.Deliveries)
	for i, d := range head.Deliveries {
		one, attempts := c.delivery(d.ID)
		c.same("alone", want[i], one)
		if len(attempts)+len(view.Attempts[d.Seq]) != 0 {
			c.Errorf("attempts %+v", attempts)
		}
	}

	messages, err := c.UserMessages(c.ctx(), "u-whole", 0, 10)
	c.must(err)
	c.same("the user message", []model.UserMessage{{ID: r.Message.ID, Seq: 1, RequestID: r.ID, Title: r.Message.Title,
		Body: r.Message.Body, CreatedAt: view.AcceptedAt}}, messages)

	outgoing, err := c.Outgoing(c.ctx(), []model.Seq{seqs[1], model.DeliverySeqs - 1, seqs[2], seqs[0]})
	c.must(err)
	sent := model.Outgoing{Request: head.Seq, RequestID: r.ID, BizType: r.BizType, Recipient: r.Recipient, Priority: r.Priority, Locale: "fr",
		Template: c.version, Variables: r.Variables, Sensitive: r.Sensitive, ExpiresAt: r.ExpiresAt}
	wantOut := []model.Outgoing{sent, sent, sent}
	for i, of := range []int{1, 2, 0} {
		wantOut[i].Seq, wantOut[i].ID, wantOut[i].Address = seqs[of], r.Deliveries[of].ID, r.Deliveries[of].Address
	}
	c.same("what is to be sent", wantOut, outgoing, cmpopts.IgnoreFields(model.Outgoing{}, "Now"))
	for _, o := range outgoing {
		if o.Now < view.AcceptedAt || o.Now > view.AcceptedAt+hour {
			c.Errorf("read at %d, accepted at %d", o.Now, view.AcceptedAt)
		}
	}
	for queue, want := range map[model.SourceID]model.Seq{text.ID: seqs[0], mail.ID: seqs[1]} {
		w, found := c.row(want)
		if diff := cmp.Diff(model.Work{Seq: want, Queue: queue, DueAt: view.AcceptedAt}, w); !found || diff != "" {
			c.Errorf("the work: %s", diff)
		}
	}
}

func emptyRequest(c *center) {
	r := c.request("u-empty")
	r.Choices = []model.Choice{{Channel: "mail", Skipped: true, Reason: "no address"}}
	head := c.accept(r)[0]
	view := c.view(r.ID)
	c.same("the request", shown(r), view.Request)
	if len(head.Deliveries)+len(view.Deliveries) != 0 || view.Secret || view.Erased {
		c.Errorf("kept as %+v, shown as %+v", head, view)
	}
	messages, err := c.UserMessages(c.ctx(), "u-empty", 0, 10)
	c.must(err)
	if len(messages) != 0 {
		c.Errorf("the user sees %+v", messages)
	}
}

// columnsOf are those of a table.
func (k *kit) columnsOf(table string) []string {
	k.Helper()
	rows, err := k.raw.QueryContext(k.ctx(), "SELECT * FROM posthouse_"+table+" WHERE 1 = 0")
	k.must(err)
	defer rows.Close()
	columns, err := rows.Columns()
	k.must(err)
	k.must(rows.Err())
	return columns
}

func oneDeliveryEach(c *center) {
	channel := c.channel()
	_, seqs := c.send(channel, 1)
	c.put(c.source(), 2) // whose ids a copy of the delivery gets
	ids := c.number(`SELECT max(seq) FROM posthouse_message`)
	duplicate := func(purpose model.Purpose, id int64, step int) error {
		var values []string
		columns := c.columnsOf("delivery")
		for _, column := range columns {
			value := map[string]string{"seq": fmt.Sprintf("d.seq + %d", step), "id": "m.id", "purpose": fmt.Sprint(int16(purpose))}[column]
			if value == "" {
				value = "d." + column
			}
			values = append(values, value)
		}
		_, err := c.raw.ExecContext(c.ctx(), fmt.Sprintf(`INSERT INTO posthouse_delivery (%s) SELECT %s FROM posthouse_delivery d, posthouse_message m
			WHERE d.seq = %d AND m.seq = %d`, strings.Join(columns, ", "), strings.Join(values, ", "), seqs[0], id))
		return err
	}
	if err := duplicate(model.PurposeEscalation, ids, 1000); err != nil {
		c.Errorf("for another purpose: %v", err)
	}
	if err := duplicate(model.PurposePrimary, ids-1, 2000); err == nil {
		c.Error("a second delivery was kept")
	}
	r := c.request("u1", channel, channel)
	_, err := c.PutRequests(c.ctx(), []model.NewRequest{r})
	c.wantCode(err, model.CodeRejected)
	_, err = c.Request(c.ctx(), r.ID)
	c.wantCode(err, model.CodeNotFound)
}

func doneAtInsert(c *center) {
	inApp, text := c.channel(), c.channel()
	r := c.seenBy(c.request("u-done", text), inApp)
	c.accept(r, c.seenBy(c.request("u-done"), inApp))
	c.wantDelivered(inApp.ID, 2, 0, 2)
	c.wantDelivered(text.ID, 1, 1, 0)
	got := c.stats(inApp.ID)
	if got.Success != 2 || got.Pending != 0 || got.Due != 0 {
		c.Errorf("counted as %+v", got)
	}
	view := c.wantStatus(r.Deliveries[1].ID, model.DeliverySucceeded)
	if view.AttemptCount != 0 || view.FinishedAt != view.CreatedAt {
		c.Errorf("shown as %+v", view)
	}
	c.answers(again(r))
	if got := c.stats(inApp.ID); got.Success != 2 {
		c.Errorf("with a duplicate %d are counted", got.Success)
	}
}

func notBefore(c *center) {
	channel, owner := c.channel(), c.instance()
	later, past := c.request("u1", channel), c.request("u1", channel)
	later.NotBefore, past.NotBefore = model.MicrosOf(time.Now().Add(time.Hour)), 12345
	c.accept(later, past)
	if view := c.wantStatus(later.Deliveries[0].ID, model.DeliveryPending); view.NextAttemptAt != later.NotBefore {
		c.Errorf("due at %d, not before %d", view.NextAttemptAt, later.NotBefore)
	}
	if got := c.view(later.ID).Request.NotBefore; got != later.NotBefore {
		c.Errorf("shown as not before %d", got)
	}
	works := c.pick(channel.ID, owner, 5)
	if view := c.wantStatus(past.Deliveries[0].ID, model.DeliveryProcessing); len(works) != 1 || works[0].Seq != view.Seq {
		c.Errorf("claimed %+v, want the one that is due", works)
	}
	if got := c.stats(channel.ID); got.Pending != 1 || got.Due != 0 || got.Processing != 1 {
		c.Errorf("counted as %+v", got)
	}
}

func oddTexts(c *center) {
	inApp, channel := c.channel(), c.channel()
	odd := "ü😀 'q' \"d\" \\ %s $1 ? :a\r\n\t" + strings.Repeat("é", 300)
	r := c.seenBy(c.request("ü😀 ' \\", channel), inApp)
	r.Tags = []string{odd, "nul \x00 in it"}
	r.Choices[0].Reason = odd + "\x00"
	r.Deliveries[0].Reason, r.Deliveries[0].Masked = odd+"\x00", odd
	r.Message.Title, r.Message.Body = "t\x00\xff", odd+"\x00"
	c.accept(r)
	view := c.view(r.ID)
	c.same("the request", shown(r), view.Request)
	if got := view.Deliveries[0]; got.Reason != odd+"\uFFFD" || got.Masked != odd || got.Recipient != r.Recipient {
		c.Errorf("shown as %+v", got)
	}
	messages, err := c.UserMessages(c.ctx(), r.Recipient, 0, 10)
	c.must(err)
	if len(messages) != 1 || messages[0].Title != "t\uFFFD\uFFFD" || messages[0].Body != odd+"\uFFFD" {
		c.Errorf("the user sees %+v", messages)
	}
}

func rejectedRequest(c *center) {
	channel, inApp := c.channel(), c.channel()
	good, bad := c.seenBy(c.request("u-rejected", channel), inApp), c.seenBy(c.request("u-rejected", channel), inApp)
	bad.Key = strings.Repeat("k", model.MaxIdempotencyKey+1)
	for _, batch := range [][]model.NewRequest{{good, bad, c.request("u-rejected", channel)}, {bad}} {
		_, err := c.PutRequests(c.ctx(), batch)
		c.wantCode(err, model.CodeRejected)
		c.wantDelivered(channel.ID, 0, 0, 0)
		c.wantDelivered(inApp.ID, 0, 0, 0)
	}
	c.accept(good)
	messages, err := c.UserMessages(c.ctx(), "u-rejected", 0, 10)
	c.must(err)
	if len(messages) != 1 || messages[0].Seq != 1 {
		c.Errorf("the user sees %+v", messages)
	}
}

// cutOffRequests puts requests with a ctx that ends at any moment, and then
// again, as somebody does who does not know.
func cutOffRequests(c *center) {
	inApp, channel := c.channel(), c.channel()
	kept := int64(0)
	for i := range 16 {
		batch := make([]model.NewRequest, 20)
		for j := range batch {
			batch[j] = c.seenBy(c.request(fmt.Sprint("u-cut-", j%3), channel), inApp)
		}
		ctx, cancel := context.WithTimeout(c.ctx(), time.Duration(i*i)*50*time.Microsecond)
		_, err := c.PutRequests(ctx, batch)
		cancel()
		if err != nil {
			c.wantCode(err, model.CodeUnavailable)
		}
		n := c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_delivery WHERE channel = %d`, channel.ID)) - kept
		if n != 0 && n != int64(len(batch)) || err == nil && n == 0 {
			c.Fatalf("round %d: %d of %d were kept, error %v", i, n, len(batch), err)
		}
		c.accept(batch...)
		kept += int64(len(batch))
		c.wantDelivered(channel.ID, kept, kept, 0)
		c.wantDelivered(inApp.ID, kept, 0, kept)
	}
	if got := c.stats(inApp.ID).Success; got != kept {
		c.Errorf("%d are counted, want %d", got, kept)
	}
	for user := range 3 {
		c.wantNumbered(fmt.Sprint("u-cut-", user))
	}
}
