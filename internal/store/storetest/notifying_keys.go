package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func idempotencyKeys(c *center) {
	c.run("NC-02 the same ids again change nothing, also after deliveries have ended", repeatedRequest)
	c.run("NC-02 a known key is answered with what is kept under it", knownKey)
	c.run("NC-02 of one key twice in a call the first is kept", twiceInACall)
	c.run("NC-02 keys are compared byte for byte", everyByte)
	c.run("AC-1 of many at once with one key one is kept", identicalAtOnce)
	c.run("AC-1 batches that share keys in another order do not stop each other", overlappingBatches)
}

func repeatedRequest(c *center) {
	channel, inApp, owner := c.channel(), c.channel(), c.instance()
	var batch []model.NewRequest
	for range 5 {
		batch = append(batch, c.seenBy(c.request("u-repeated", channel), inApp))
	}
	batch[0].Sensitive = model.Sealed{KeyID: "k1", Bytes: []byte("sealed")}
	heads := c.accept(batch...)
	works := c.pickStarted(channel.ID, owner, 3)
	c.end(model.SettleSuccess, works[0])
	c.end(model.SettleFailed, works[1])
	c.end(model.SettleUncertain, works[2])
	_, err := c.CancelRequest(c.ctx(), batch[3].ID, by)
	c.must(err)
	before := c.dump(slices.Concat(notificationTables, tables))
	c.same("the second answers", heads, c.accept(batch...))
	turned := slices.Clone(batch)
	slices.Reverse(turned)
	c.accept(turned...)
	if after := c.dump(slices.Concat(notificationTables, tables)); after != before {
		c.Error("something was changed")
	}
	more := append(slices.Clone(batch), c.seenBy(c.request("u-repeated", channel), inApp))
	c.accept(more...)
	c.wantDelivered(channel.ID, 6, 5, 1)
	c.wantNumbered("u-repeated")
}

func knownKey(c *center) {
	channel, inApp := c.channel(), c.channel()
	r := c.seenBy(c.request("u-known", channel), inApp)
	head := c.accept(r)[0]
	other := again(r)
	other.Content, other.BizType, other.Recipient = contentOf(other.ID), "something else", "u-other"
	other.Choices, other.Deliveries = other.Choices[:1], other.Deliveries[:1]
	fresh := c.request("u-known", channel)
	answers := c.answers(again(r), fresh, other)
	for _, i := range []int{0, 2} {
		if !answers[i].Duplicate {
			c.Errorf("answer %d says that it is the first", i)
		}
		c.same("the first answer again", head, answers[i].First)
	}
	if answers[1].Duplicate || answers[1].First.ID != fresh.ID {
		c.Errorf("the fresh one is answered with %+v", answers[1])
	}
	c.wantDelivered(channel.ID, 2, 2, 0)
	c.wantDelivered(inApp.ID, 1, 0, 1)
	_, err := c.Request(c.ctx(), other.ID)
	c.wantCode(err, model.CodeNotFound)
	if messages := c.wantNumbered("u-other"); messages != 0 {
		c.Errorf("another user sees %d", messages)
	}
}

func twiceInACall(c *center) {
	channel, inApp := c.channel(), c.channel()
	r := c.seenBy(c.request("u-twice", channel), inApp)
	second := again(r)
	answers := c.answers(c.request("u-twice", channel), r, second, c.request("u-twice", channel), r)
	for i, want := range []bool{false, false, true, false, false} {
		if answers[i].Duplicate != want {
			c.Errorf("answer %d is %+v, want a duplicate: %t", i, answers[i], want)
		}
	}
	c.same("the second", answers[1].First, answers[2].First)
	c.same("itself", answers[1].First, answers[4].First)
	c.wantDelivered(channel.ID, 3, 3, 0)
	c.wantDelivered(inApp.ID, 1, 0, 1)
	if n := c.wantNumbered("u-twice"); n != 1 {
		c.Errorf("the user sees %d", n)
	}
}

func everyByte(c *center) {
	keys := []string{
		"k", "K", "k ", " k", "k\t", "k\n", "k\x00", "k\x00\x00", "k%", "k_", "k\\", "k'", "\x00", "\xff", "\xff\xfe", "\xc3", "é", "e\u0301", "É", "e",
		"ß", "ss", "SS", "ı", "i", "I", "\u212a", "æ", "ae", "ｋ", "1", "01", "1.0", "\u200bk", strings.Repeat("x", model.MaxIdempotencyKey),
		strings.Repeat("x", model.MaxIdempotencyKey-1), strings.Repeat("😀", model.MaxIdempotencyKey/4),
	}
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	keys = append(keys, string(all[:128]), string(all[128:]))
	var batch []model.NewRequest
	for _, key := range keys {
		r := c.request("u-bytes")
		r.Key = key
		batch = append(batch, r)
	}
	c.accept(batch...)
	for _, r := range batch {
		head, err := c.RequestByKey(c.ctx(), r.Key)
		c.must(err)
		if got := c.view(r.ID).Request.Key; head.ID != r.ID || got != r.Key {
			c.Errorf("under %q is kept what has the key %q", r.Key, got)
		}
		if answer := c.answers(again(r))[0]; !answer.Duplicate || answer.First.ID != r.ID {
			c.Errorf("%q again: %+v", r.Key, answer)
		}
	}
}

func identicalAtOnce(c *center) {
	channel, inApp := c.channel(), c.channel()
	stores := []Notifications{c.Notifications, c.notifications(c.h.Again(c.T, c.Store))}
	r := c.seenBy(c.request("u-at-once", channel), inApp)
	const calls = 60
	answers := make([]model.PutRequest, calls)
	var wg sync.WaitGroup
	for i := range calls {
		mine, theirs := stores[i%2], stores[(i+1)%2]
		wg.Go(func() {
			got, err := mine.PutRequests(c.ctx(), []model.NewRequest{again(r)})
			if err != nil || len(got) != 1 {
				c.Errorf("answers %+v, %v", got, err)
				return
			}
			answers[i] = got[0]
			// What a duplicate is told of has been committed: everybody sees it.
			if head, err := theirs.RequestByKey(c.ctx(), r.Key); err != nil || head.ID != got[0].First.ID {
				c.Errorf("told of %v, the other store finds %v, %v", got[0].First.ID, head.ID, err)
			}
		})
	}
	wg.Wait()
	first := 0
	for _, a := range answers {
		if !a.Duplicate {
			first++
		}
		c.same("all answers", answers[0].First, a.First)
	}
	if first != 1 {
		c.Errorf("%d are said to be the first", first)
	}
	c.wantDelivered(channel.ID, 1, 1, 0)
	c.wantDelivered(inApp.ID, 1, 0, 1)
	if n := c.wantNumbered("u-at-once"); n != 1 {
		c.Errorf("the user sees %d", n)
	}
}

func overlappingBatches(c *center) {
	channel, inApp := c.channel(), c.channel()
	stores := []Notifications{c.Notifications, c.notifications(c.h.Again(c.T, c.Store))}
	const keys, calls, rounds = 20, 8, 4
	for range rounds {
		var batch []model.NewRequest
		for i := range keys {
			batch = append(batch, c.seenBy(c.request(fmt.Sprint("u-overlap-", i%4), channel), inApp))
		}
		answers := make([]map[string]model.PutRequest, calls)
		var wg sync.WaitGroup
		for i := range calls {
			mine := make([]model.NewRequest, keys)
			for j := range mine {
				mine[j] = again(batch[(j+5*i)%keys])
			}
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			wg.Go(func() {
				got, err := stores[i/2%2].PutRequests(c.ctx(), mine)
				if err != nil || len(got) != keys {
					c.Errorf("%d answers, %v", len(got), err)
					return
				}
				answers[i] = map[string]model.PutRequest{}
				for j, a := range got {
					if !a.Duplicate && a.First.ID != mine[j].ID {
						c.Errorf("the first is %v, put was %v", a.First.ID, mine[j].ID)
					}
					answers[i][mine[j].Key] = a
				}
			})
		}
		wg.Wait()
		for _, r := range batch {
			first := 0
			for _, of := range answers {
				if !of[r.Key].Duplicate {
					first++
				}
				c.same("all answers", answers[0][r.Key].First, of[r.Key].First)
			}
			if first != 1 {
				c.Errorf("%d are said to be the first of %s", first, r.Key)
			}
		}
	}
	c.wantDelivered(channel.ID, keys*rounds, keys*rounds, 0)
	c.wantDelivered(inApp.ID, keys*rounds, 0, keys*rounds)
	for user := range 4 {
		c.wantNumbered(fmt.Sprint("u-overlap-", user))
	}
}

func userMessages(c *center) {
	c.run("messages of a user come page by page, and no other's", pagesOfAUser)
	c.run("users are compared byte for byte", usersByBytes)
	c.run("NC-01 numbers have no gap, and a number that is seen has none missing before it", numberedAtOnce)
}

// wantNumbered wants the messages of a user to be numbered from 1 without
// gaps, and says how many there are.
func (c *center) wantNumbered(user string) int {
	c.Helper()
	messages, err := c.UserMessages(c.ctx(), user, 0, 100_000)
	c.must(err)
	for i, m := range messages {
		if m.Seq != int64(i+1) {
			c.Errorf("message %d of %s has the number %d", i+1, user, m.Seq)
			break
		}
	}
	return len(messages)
}

func pagesOfAUser(c *center) {
	inApp := c.channel()
	var batch []model.NewRequest
	for i := range 9 {
		r := c.seenBy(c.request([]string{"u-a", "u-b"}[i%2], inApp), inApp)
		r.Deliveries = r.Deliveries[1:]
		batch = append(batch, r)
	}
	c.accept(batch[:4]...)
	c.accept(batch[4:]...)
	for user, ids := range map[string][]int{"u-a": {0, 2, 4, 6, 8}, "u-b": {1, 3, 5, 7}, "nobody": nil} {
		for _, limit := range []int{1, 2, 100} {
			var got []uuid.UUID
			for after := int64(0); ; {
				page, err := c.UserMessages(c.ctx(), user, after, limit)
				c.must(err)
				if len(page) > limit {
					c.Fatalf("a page of %d has %d", limit, len(page))
				}
				if len(page) == 0 {
					break
				}
				for _, m := range page {
					got = append(got, m.ID)
				}
				after = page[len(page)-1].Seq
			}
			var want []uuid.UUID
			for _, i := range ids {
				want = append(want, batch[i].Message.ID)
			}
			c.same("of "+user, want, got)
		}
	}
}

func usersByBytes(c *center) {
	inApp := c.channel()
	users := []string{"anna", "Anna", "anna ", "\u00e1nna", "a\u0301nna", strings.Repeat("u", model.MaxRecipientID)}
	for range 2 {
		for _, user := range users {
			c.accept(c.seenBy(c.request(user), inApp))
		}
	}
	for _, user := range users {
		if n := c.wantNumbered(user); n != 2 {
			c.Errorf("%q sees %d", user, n)
		}
	}
}

func numberedAtOnce(c *center) {
	inApp := c.channel()
	stores := []Notifications{c.Notifications, c.notifications(c.h.Again(c.T, c.Store))}
	const writers, calls, users = 6, 8, 3
	user := func(i int) string { return fmt.Sprint("u-numbered-", i%users) }
	written := make(chan struct{})
	var wg, readers sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range calls {
				batch := []model.NewRequest{
					c.seenBy(c.request(user(i+w)), inApp), c.seenBy(c.request(user(i)), inApp), c.seenBy(c.request(user(i+w)), inApp),
				}
				if _, err := stores[w%2].PutRequests(c.ctx(), batch); err != nil {
					c.Error(err)
				}
			}
		})
	}
	for u := range users {
		readers.Go(func() {
			last := int64(0)
			for done := false; ; {
				page, err := stores[u%2].UserMessages(c.ctx(), user(u), last, 100)
				if err != nil {
					c.Error(err)
					return
				}
				for _, m := range page {
					if m.Seq != last+1 {
						c.Errorf("after %d the user sees %d", last, m.Seq)
						return
					}
					last = m.Seq
				}
				if done && len(page) == 0 {
					return
				}
				select {
				case <-written:
					done = true
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	wg.Wait()
	close(written)
	readers.Wait()
	n := 0
	for u := range users {
		n += c.wantNumbered(user(u))
	}
	if n != 3*writers*calls {
		c.Errorf("the users see %d messages, want %d", n, 3*writers*calls)
	}
}
