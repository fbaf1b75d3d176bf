package columns

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func TestShortTextIsCleanAndNeverCutInsideACharacter(t *testing.T) {
	for _, c := range []struct {
		text string
		size int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aü", 2, "a"}, {"aüb", 3, "aü"}, {"😀😀", 7, "😀"},
		{"a\x00b", 5, "a\uFFFDb"}, {"a\x00b", 4, "a\uFFFD"}, {"a\x00b", 3, "a"}, {"\xff\xfe", 9, "\uFFFD"},
	} {
		if got := Short(c.text, c.size); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.size, got, c.want)
		}
	}
	if got := Short(strings.Repeat("x", 1<<20), 64); len(got) != 64 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestContentComesBack(t *testing.T) {
	want := model.Content{KeyID: "k1", Fields: [model.ContentFields][16]byte{{1, 15: 2}, {3}, {}, {0, 4}, {15: 9}}}
	if got, err := ParseContent("k1", FormatContent(want)); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseContent("k1", FormatContent(want)[1:]); err == nil {
		t.Error("content that is too short is read")
	}
}

func TestTemplateHashTellsEveryField(t *testing.T) {
	one := model.TemplateVersion{Code: "a", Kind: "b", Locale: "c", Subject: "d", HTML: "e", Text: "f", Schema: "g"}
	again := one
	again.ID = 7
	if TemplateHash(one) != TemplateHash(again) {
		t.Error("the number matters")
	}
	seen := map[[32]byte]bool{TemplateHash(one): true}
	for _, change := range []func(*model.TemplateVersion){
		func(v *model.TemplateVersion) { v.Code = "x" }, func(v *model.TemplateVersion) { v.Kind = "x" },
		func(v *model.TemplateVersion) { v.Locale = "x" }, func(v *model.TemplateVersion) { v.Subject = "x" },
		func(v *model.TemplateVersion) { v.HTML = "x" }, func(v *model.TemplateVersion) { v.Text = "x" },
		func(v *model.TemplateVersion) { v.Schema = "x" }, func(v *model.TemplateVersion) { v.Code, v.Kind = "ab", "" },
	} {
		other := one
		change(&other)
		if sum := TemplateHash(other); seen[sum] {
			t.Errorf("%+v is told from no other", other)
		} else {
			seen[sum] = true
		}
	}
}

func TestDeliveriesStandInTheOrderOfChoices(t *testing.T) {
	choices := []model.Choice{{Channel: "mail", Skipped: true}, {Channel: "text"}, {Channel: "in_app"}, {Channel: "mail"}}
	deliveries := []model.DeliveryHead{
		{Seq: 1, Channel: "old"}, {Seq: 2, Channel: "mail"}, {Seq: 3, Channel: "in_app"}, {Seq: 4, Channel: "text", Purpose: 1}, {Seq: 5, Channel: "text"},
	}
	SortDeliveries(choices, deliveries)
	var got []model.Seq
	for _, d := range deliveries {
		got = append(got, d.Seq)
	}
	if diff := cmp.Diff([]model.Seq{5, 4, 3, 2, 1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestClassOfAnAttempt(t *testing.T) {
	for _, c := range []struct {
		outcome string
		reason  model.Reason
		want    model.Class
	}{
		{"", "", ""},
		{model.OutcomeUncertain, model.ReasonWorkerLost, model.ClassUncertain},
		{model.OutcomeFailed, model.ReasonRateLimited, model.ClassRateLimited},
		{model.OutcomeFailed, model.ReasonPermanent, model.ClassPermanent},
		{model.OutcomeFailed, model.ReasonPanic, model.ClassTransient},
		{model.OutcomeLost, model.ReasonWorkerLost, model.ClassTransient},
	} {
		if got := ClassOf(c.outcome, c.reason); got != c.want {
			t.Errorf("%s for %s is %s, want %s", c.outcome, c.reason, got, c.want)
		}
	}
}

func TestSeqAtFindsWhereATimeBegins(t *testing.T) {
	var rows []model.Seq // made at ten times their seq
	for seq := model.DeliverySeqs; seq < model.DeliverySeqs+4000; seq += 1 + seq%5 {
		rows = append(rows, seq)
	}
	first, last := rows[0], rows[len(rows)-1]
	for at := first - 3; at <= last+3; at++ {
		asked := 0
		got, err := SeqAt(first, last, model.Micros(at), func(from model.Seq) (model.Seq, model.Micros, bool, error) {
			asked++
			i, _ := slices.BinarySearch(rows, from)
			if i == len(rows) {
				return 0, 0, false, nil
			}
			return rows[i], model.Micros(rows[i]), true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want, _ := slices.BinarySearch(rows, at)
		if i, _ := slices.BinarySearch(rows, got); i != want {
			t.Fatalf("%d begins at row %d, want %d", at, i, want)
		}
		if asked > 13 {
			t.Fatalf("asked %d times", asked)
		}
	}
}

func TestWhatMayBeReplayed(t *testing.T) {
	freely, forced := 0, 0
	for _, status := range model.DeliveryStatuses() {
		if MayReplay(status, false) {
			freely++
		}
		if MayReplay(status, true) {
			forced++
		}
		waits := !status.Final() && status != model.DeliveryUncertain
		if MayReplay(status, false) && !MayReplay(status, true) || MayReplay(status, true) == waits {
			t.Errorf("%s: %t, with force %t", status, MayReplay(status, false), MayReplay(status, true))
		}
	}
	if freely != 2 || forced != 6 {
		t.Errorf("%d are replayed, %d with force", freely, forced)
	}
}

func TestAuditRecordsSayWhoDidWhatToWhat(t *testing.T) {
	id := uuid.MustParse("01920000-0000-7000-8000-000000000001")
	by := model.Audit{Actor: "o\x00ps", Reason: "why\xff"}
	for _, c := range []struct {
		got  model.AuditRecord
		want [3]string
	}{
		{ReplayAudit(id, model.DeliveryDead, by), [3]string{"delivery.replay", "delivery/" + id.String(), `{"was":"DEAD"}`}},
		{ResolveAudit(id, true, by), [3]string{"delivery.resolve", "delivery/" + id.String(), `{"was":"UNCERTAIN","outcome":"sent"}`}},
		{ResolveAudit(id, false, by), [3]string{"delivery.resolve", "delivery/" + id.String(), `{"was":"UNCERTAIN","outcome":"not_sent"}`}},
		{CancelAudit(id, 2, by), [3]string{"notification.cancel", "notification/" + id.String(), `{"cancelled":2}`}},
		{SwitchAudit("channel/mail", false, by), [3]string{"channel.pause", "channel/mail", `{}`}},
		{SwitchAudit("channel/mail", true, by), [3]string{"channel.resume", "channel/mail", `{}`}},
		{SwitchAudit("erp", false, by), [3]string{"source.pause", "source/erp", `{}`}},
	} {
		if got := [3]string{c.got.Action, c.got.Target, string(c.got.Details)}; got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
		if c.got.Actor != "o\uFFFDps" || c.got.Reason != "why\uFFFD" {
			t.Errorf("by %q, since %q", c.got.Actor, c.got.Reason)
		}
	}
	if Details(nil) != "{}" || Details([]byte(`{"a":1}`)) != `{"a":1}` {
		t.Error("details are changed")
	}
}
