package storetest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func secrets(c *center) {
	c.alone("NC-07 sensitive values are listed, request by request", listedSecrets)
	c.run("NC-07 sensitive values are erased when the last delivery is final, not before", erasedWhenFinal)
	c.run("NC-13 what has lost its sensitive values is not replayed", erasedIsNotReplayed)
	c.run("NC-13 of erasing and replaying at once one holds", erasedOrReplayed)
	c.run("NC-10 what has lost its sensitive values was sent, or stays uncertain", erasedIsResolved)
}

// secret is a request with sensitive values.
func (c *center) secret(channels ...model.Source) model.NewRequest {
	r := c.request("u-secret", channels...)
	r.Sensitive = model.Sealed{KeyID: "k1", Bytes: []byte("sealed")}
	return r
}

func (c *center) erase(want int, requests ...model.Seq) {
	c.Helper()
	n, err := c.EraseSecrets(c.ctx(), requests)
	c.must(err)
	if n != want {
		c.Errorf("%d were erased, want %d", n, want)
	}
}

func listedSecrets(c *center) {
	channel := c.channel()
	var want []model.Seq
	for i := range 7 {
		r := c.request("u1", channel)
		if i%2 == 0 {
			r = c.secret(channel)
		}
		if head := c.accept(r)[0]; i%2 == 0 {
			want = append(want, head.Seq)
		}
	}
	for _, limit := range []int{1, 3, 100} {
		var got []model.Seq
		for after := model.Seq(0); ; {
			page, err := c.Secrets(c.ctx(), after, limit)
			c.must(err)
			if len(page) > limit {
				c.Fatalf("a page of %d has %d", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = page[len(page)-1]
		}
		c.same("secrets", want, got)
	}
	works := c.pickStarted(channel.ID, c.instance(), 100)
	c.end(model.SettleSuccess, works...)
	c.erase(2, want[0], want[2])
	got, err := c.Secrets(c.ctx(), 0, 100)
	c.must(err)
	c.same("those that are left", []model.Seq{want[1], want[3]}, got)
	c.erase(0)
}

func erasedWhenFinal(c *center) {
	for _, state := range parcelMakers {
		want := map[string]int{"SUCCEEDED": 1, "DELIVERED": 1, "FAILED": 1, "DEAD": 1, "CANCELLED": 1, "resolved": 1, "inserted": 1}[state.name]
		c.run(fmt.Sprintf("%s: %d", state.name, want), func(c *center) {
			p := &parcel{channel: c.channel(), owner: c.instance()}
			state.make(c, p)
			seq := c.view(p.request.ID).Seq
			c.erase(0, seq) // there is nothing to erase
			c.must(c.addSecret(seq))
			c.erase(want, seq)
			c.erase(0, seq)
			view := c.view(p.request.ID)
			if !view.Secret || view.Erased != (want == 1) {
				c.Errorf("secret %t, erased %t", view.Secret, view.Erased)
			}
			outgoing, err := c.Outgoing(c.ctx(), []model.Seq{c.numberOf(p.id)})
			c.must(err)
			if len(outgoing) != 1 || outgoing[0].Erased != view.Erased || (len(outgoing[0].Sensitive.Bytes) == 0) != view.Erased {
				c.Errorf("to be sent is %+v", outgoing)
			}
		})
	}
	c.run("the last of several", func(c *center) {
		owner := c.instance()
		a, b, inApp := c.channel(), c.channel(), c.channel()
		r := c.seenBy(c.secret(a, b), inApp)
		seq := c.accept(r)[0].Seq
		c.erase(0, seq, seq+1000)
		c.end(model.SettleSuccess, c.pickStarted(a.ID, owner, 1)...)
		c.erase(0, seq)
		c.end(model.SettleUncertain, c.pickStarted(b.ID, owner, 1)...)
		c.erase(0, seq)
		result, err := c.ResolveDelivery(c.ctx(), r.Deliveries[1].ID, true, by)
		c.must(err)
		if !result.Done {
			c.Errorf("resolved as %+v", result)
		}
		c.erase(1, seq, seq+1000)
	})
	c.run("nothing was sent at all", func(c *center) {
		r := c.secret()
		c.erase(1, c.accept(r)[0].Seq)
		if view := c.view(r.ID); !view.Secret || !view.Erased {
			c.Errorf("shown as %+v", view)
		}
	})
}

// addSecret gives a request sensitive values that it was not put with, so that
// what makes deliveries in all states need not know of it.
func (c *center) addSecret(request model.Seq) error {
	other := c.secret()
	from := c.accept(other)[0].Seq
	if _, err := c.raw.ExecContext(c.ctx(), fmt.Sprintf(`UPDATE posthouse_secret SET request = %d WHERE request = %d`, request, from)); err != nil {
		return err
	}
	_, err := c.raw.ExecContext(c.ctx(), fmt.Sprintf(`UPDATE posthouse_request SET secret = (SELECT o.secret FROM (SELECT secret FROM posthouse_request WHERE seq = %d) o)
		WHERE seq = %d`, from, request))
	return err
}

func erasedIsNotReplayed(c *center) {
	channel, owner := c.channel(), c.instance()
	for kind, want := range map[model.SettleKind]model.DeliveryStatus{
		model.SettleDead: model.DeliveryDead, model.SettleFailed: model.DeliveryFailed, model.SettleSuccess: model.DeliverySucceeded,
	} {
		r := c.secret(channel)
		seq := c.accept(r)[0].Seq
		c.end(kind, c.pickStarted(channel.ID, owner, 1)...)
		c.erase(1, seq)
		id := r.Deliveries[0].ID
		results, err := c.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{id}, Force: true, Audit: by})
		c.must(err)
		c.same("the result", []model.ChangeResult{{ID: id, Found: true, Was: want, Is: want, Erased: true}}, results)
		c.wantStatus(id, want)
		if records := c.records("delivery/" + id.String()); len(records) != 0 {
			c.Errorf("records %+v", records)
		}
	}
	// While they are there they are sent again.
	r := c.secret(channel)
	seq := c.accept(r)[0].Seq
	c.end(model.SettleDead, c.pickStarted(channel.ID, owner, 1)...)
	if !replayWith(false)(c, &parcel{id: r.Deliveries[0].ID}) {
		c.Error("not replayed")
	}
	c.erase(0, seq)
}

func erasedOrReplayed(c *center) {
	channel, owner := c.channel(), c.instance()
	other := c.notifications(c.h.Again(c.T, c.Store))
	for round := range 12 {
		r := c.secret(channel)
		seq := c.accept(r)[0].Seq
		c.end([]model.SettleKind{model.SettleDead, model.SettleSuccess}[round%2], c.pickStarted(channel.ID, owner, 1)...)
		var erased int
		var results []model.ChangeResult
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { erased, errs[0] = c.EraseSecrets(c.ctx(), []model.Seq{seq}) })
		wg.Go(func() {
			results, errs[1] = other.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{r.Deliveries[0].ID}, Force: true, Audit: by})
		})
		wg.Wait()
		if i := slices.IndexFunc(errs[:], func(err error) bool { return err != nil }); i >= 0 {
			c.Fatal(errs[i])
		}
		view := c.view(r.ID)
		replayed := view.Deliveries[0].Status == model.DeliveryPending
		if replayed == view.Erased || results[0].Done != replayed || results[0].Erased == replayed || (erased == 1) != view.Erased {
			c.Errorf("erased %d, replayed as %+v, shown as %+v", erased, results[0], view)
		}
		if replayed {
			c.end(model.SettleSuccess, c.pickStarted(channel.ID, owner, 1)...)
		}
	}
}

// erasedIsResolved: an uncertain delivery keeps them, unless somebody else has
// deleted them.
func erasedIsResolved(c *center) {
	channel, owner := c.channel(), c.instance()
	r := c.secret(channel)
	seq := c.accept(r)[0].Seq
	id := r.Deliveries[0].ID
	c.end(model.SettleUncertain, c.pickStarted(channel.ID, owner, 1)...)
	_, err := c.raw.ExecContext(c.ctx(), fmt.Sprintf(`DELETE FROM posthouse_secret WHERE request = %d`, seq))
	c.must(err)
	result, err := c.ResolveDelivery(c.ctx(), id, false, by)
	c.must(err)
	c.same("not sent", model.ChangeResult{ID: id, Found: true, Was: model.DeliveryUncertain, Is: model.DeliveryUncertain, Erased: true}, result)
	if view := c.wantStatus(id, model.DeliveryUncertain); view.Replay != 0 || len(c.records("delivery/"+id.String())) != 0 {
		c.Errorf("shown as %+v", view)
	}
	result, err = c.ResolveDelivery(c.ctx(), id, true, by)
	c.must(err)
	c.same("sent", model.ChangeResult{ID: id, Found: true, Done: true, Was: model.DeliveryUncertain, Is: model.DeliverySucceeded}, result)
}

func templates(c *center) {
	c.run("NC-14 the same content has the same number, other content another", templateNumbers)
	c.run("NC-14 many at once agree on the numbers", templatesAtOnce)
}

func templateNumbers(c *center) {
	code := uuid.NewString()
	one := model.TemplateVersion{Code: code, Kind: "email", Locale: "fr", Subject: "s", HTML: "<p>ü😀</p>", Text: "t", Schema: `{"type":"object"}`}
	versions := []model.TemplateVersion{one}
	for _, change := range []func(*model.TemplateVersion){
		func(v *model.TemplateVersion) { v.Code += "x" }, func(v *model.TemplateVersion) { v.Kind = "text" },
		func(v *model.TemplateVersion) { v.Locale = "FR" }, func(v *model.TemplateVersion) { v.Locale = "" },
		func(v *model.TemplateVersion) { v.Subject = "S" }, func(v *model.TemplateVersion) { v.HTML += " " },
		func(v *model.TemplateVersion) { v.Text = "t\n" }, func(v *model.TemplateVersion) { v.Schema = "" },
	} {
		v := one
		change(&v)
		versions = append(versions, v)
	}
	ids, err := c.PutTemplates(c.ctx(), versions)
	c.must(err)
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(versions) || sorted[0] <= 0 {
		c.Errorf("the numbers are %v", ids)
	}
	twice, err := c.PutTemplates(c.ctx(), []model.TemplateVersion{versions[3], one, versions[3]})
	c.must(err)
	c.same("put again", []model.TemplateID{ids[3], ids[0], ids[3]}, twice)
	fresh := one
	fresh.Text = "fresh"
	more, err := c.PutTemplates(c.ctx(), []model.TemplateVersion{fresh, one, fresh})
	c.must(err)
	if more[0] != more[2] || more[1] != ids[0] || slices.Contains(ids, more[0]) {
		c.Errorf("%v, and then %v", ids, more)
	}
	got, err := c.Templates(c.ctx(), []model.TemplateID{ids[2], ids[0], ids[2]})
	c.must(err)
	versions[0].ID, versions[2].ID = ids[0], ids[2]
	c.same("read", []model.TemplateVersion{versions[2], versions[0], versions[2]}, got)
	_, err = c.Templates(c.ctx(), []model.TemplateID{ids[0], 1 << 30})
	c.wantCode(err, model.CodeNotFound)
	for _, none := range [][]model.TemplateVersion{nil, {}} {
		if ids, err := c.PutTemplates(c.ctx(), none); err != nil || len(ids) != 0 {
			c.Errorf("nothing: %v, %v", ids, err)
		}
	}
}

func templatesAtOnce(c *center) {
	stores := []Notifications{c.Notifications, c.notifications(c.h.Again(c.T, c.Store))}
	var versions []model.TemplateVersion
	for i := range 6 {
		versions = append(versions, model.TemplateVersion{Code: uuid.NewString(), Kind: "text", Text: fmt.Sprint(i)})
	}
	const calls = 8
	got := make([][]model.TemplateID, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			mine := slices.Clone(versions)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			ids, err := stores[i/2%2].PutTemplates(c.ctx(), mine)
			if err != nil {
				c.Error(err)
			}
			if i%2 == 1 {
				slices.Reverse(ids)
			}
			got[i] = ids
		})
	}
	wg.Wait()
	for _, ids := range got {
		c.same("numbers", got[0], ids)
	}
}
