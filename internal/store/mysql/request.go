package mysql

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// PutRequests keeps requests durably, each key once, in one transaction of three
// round trips: the requests, in the order of their keys; their deliveries, and
// the numbers of user messages, in the order of users; and what is to be done.
// All but the first is made only for the requests that this very try inserted;
// put_by tells which those are. Keys come before users everywhere, and what is
// locked in order is never waited for in a ring.
func (s *Store) PutRequests(ctx context.Context, requests []model.NewRequest) (answers []model.PutRequest, err error) {
	if len(requests) == 0 {
		return nil, nil
	}
	const op = "put requests"
	firsts, rows, weight, err := requestRows(requests)
	if err != nil {
		return nil, &model.Error{Code: model.CodeRejected, Op: op, Err: err}
	}
	// With a binary log each byte is written several times.
	timeout := writeTimeout + time.Duration(weight>>22)*time.Second
	err = s.use(ctx, timeout, op, func(c *call) error {
		answers = nil
		p := &putting{c: c, requests: requests, try: rand.Int64N(math.MaxInt64) + 1}
		if err := p.keepRequests(firsts, rows); err != nil {
			return err
		}
		if err := p.keepDeliveries(); err != nil {
			return err
		}
		if len(p.inserted) == 0 {
			if err := c.rollback(); err != nil { // what is kept under the keys has been committed
				return err
			}
		} else if err := p.keepRest(s.shard); err != nil {
			return err
		}
		answers = make([]model.PutRequest, len(requests))
		for i := range requests {
			head := p.heads[requests[i].Key]
			answers[i] = model.PutRequest{Duplicate: head.ID != requests[i].ID, First: head.RequestHead}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterPutCommit)
	return answers, nil
}

// requestRows are the rows of the first request of each key, but for put_by, in
// the order of the keys, and where these requests are; weight is what all weigh.
func requestRows(requests []model.NewRequest) (firsts []int, rows [][]any, weight int, err error) {
	for i := range requests {
		firsts = append(firsts, i)
	}
	order := func(i, j int) int { return cmp.Compare(requests[i].Key, requests[j].Key) }
	slices.SortStableFunc(firsts, order)
	firsts = slices.CompactFunc(firsts, func(i, j int) bool { return order(i, j) == 0 })
	for _, i := range firsts {
		r := &requests[i]
		row := []any{r.ID[:], []byte(r.Key), r.NotBefore, r.ExpiresAt, len(r.Sensitive.Bytes) > 0, []byte(r.Content.KeyID), columns.FormatContent(r.Content),
			[]byte(r.Priority), []byte(r.Locale), []byte(r.BizType), []byte(r.Template), []byte(r.Recipient), columns.Bytes(r.Variables)}
		for _, value := range []any{r.Tags, r.Success, r.Choices} {
			text, err := columns.JSON(value)
			if err != nil {
				return nil, nil, 0, err
			}
			row = append(row, []byte(text))
		}
		rows = append(rows, row)
		weight += weigh(row) + len(r.Sensitive.Bytes)
		if r.Message != nil {
			weight += len(r.Message.Title) + len(r.Message.Body)
		}
	}
	return firsts, rows, weight, nil
}

// putting is one try to keep requests.
type putting struct {
	c        *call
	requests []model.NewRequest
	try      int64
	todo     script
	heads    map[string]*head // what is kept under each key
	inserted []int            // requests that this try has inserted, ascending
	last     map[string]int64 // the number of the last message of each user, before those
}

// head is a request that is kept, and which call did.
type head struct {
	model.RequestHead
	putBy int64
}

// keepRequests inserts the requests, and reads what is kept under their keys.
func (p *putting) keepRequests(firsts []int, rows [][]any) error {
	p.todo.add(`START TRANSACTION`)
	p.todo.add(setNow)
	p.todo.add(`SET @try = ?`, p.try)
	err := p.c.insert(&p.todo, `INSERT INTO posthouse_request (put_by, accepted_at, cancelled, id, idem_key, not_before, expires_at, secret,
		content_key, content_fields, priority, locale, biz_type, template, recipient, variables, tags, success, choices) VALUES `,
		`(@try,@now,0,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, ` ON DUPLICATE KEY UPDATE id = posthouse_request.id`, rows)
	if err != nil {
		return err
	}
	keys := make([][]byte, len(firsts))
	for n, i := range firsts {
		keys[n] = []byte(p.requests[i].Key)
	}
	if p.heads, err = p.c.readHeads(&p.todo, keys); err != nil {
		return err
	}
	p.todo = script{}
	for _, i := range firsts {
		found := p.heads[p.requests[i].Key]
		if found == nil {
			return &model.Error{Code: model.CodeRejected, Op: "put requests", Err: errors.New("the id of a request is that of another one")}
		}
		if found.putBy == p.try {
			p.inserted = append(p.inserted, i)
		}
	}
	slices.Sort(p.inserted)
	return nil
}

// keepDeliveries inserts the deliveries of the requests that were inserted, and
// reads those of all. It locks the users' numbers last.
func (p *putting) keepDeliveries() error {
	var deliveries, secrets, users [][]any
	messages := map[string]int64{}
	for _, i := range p.inserted {
		r := &p.requests[i]
		request := p.heads[r.Key].Seq
		for j := range r.Deliveries {
			d := &r.Deliveries[j]
			deliveries = append(deliveries, []any{d.ID[:], request, d.Channel, d.Purpose, d.Template, d.Done, []byte(d.Locale), columns.Text(d.Reason),
				columns.Text(d.Masked), []byte(d.Address.KeyID), columns.Bytes(d.Address.Bytes)})
		}
		if len(r.Sensitive.Bytes) > 0 {
			secrets = append(secrets, []any{request, []byte(r.Sensitive.KeyID), r.Sensitive.Bytes})
		}
		if r.Message != nil {
			messages[r.Recipient]++
		}
	}
	names := slices.Sorted(maps.Keys(messages))
	for _, name := range names {
		users = append(users, []any{[]byte(name), messages[name]})
	}
	for _, table := range []struct {
		beginning, values, end string
		rows                   [][]any
	}{
		{`INSERT INTO posthouse_delivery (created_at, id, request, channel, purpose, template, done, locale, reason, masked,
			address_key, address) VALUES `, `(@now,?,?,?,?,?,?,?,?,?,?,?)`, ``, deliveries},
		{`INSERT INTO posthouse_secret (request, key_id, sealed) VALUES `, `(?,?,?)`, ``, secrets},
		{`INSERT INTO posthouse_user (user_id, last_seq) VALUES `, `(?,?)`, ` ON DUPLICATE KEY UPDATE last_seq = last_seq + VALUES(last_seq)`, users},
	} {
		if err := p.c.insert(&p.todo, table.beginning, table.values, table.end, table.rows); err != nil {
			return err
		}
	}
	if err := p.readBack(names, messages); err != nil || len(p.inserted) == 0 {
		return err
	}
	var rows [][]any
	for _, i := range p.inserted {
		r := &p.requests[i]
		if r.Message == nil {
			continue
		}
		p.last[r.Recipient]++
		rows = append(rows, []any{[]byte(r.Recipient), p.last[r.Recipient], r.Message.ID[:], p.heads[r.Key].Seq,
			columns.Text(r.Message.Title), columns.Text(r.Message.Body)})
	}
	return p.c.insert(&p.todo, `INSERT INTO posthouse_user_message (read_at, created_at, user_id, seq, id, request, title, body) VALUES `,
		`(0,@now,?,?,?,?,?,?)`, ``, rows)
}

// readBack reads the deliveries of all requests, and the numbers of users, who
// get so many messages.
func (p *putting) readBack(users []string, messages map[string]int64) error {
	p.last = map[string]int64{}
	var numbers []func(*sql.Rows) error
	if len(users) > 0 {
		args := make([]any, len(users))
		for i := range users {
			args[i] = []byte(users[i])
		}
		if err := p.c.makeRoom(&p.todo, keyRoom*len(users)); err != nil {
			return err
		}
		p.todo.add(`SELECT user_id, last_seq FROM posthouse_user FORCE INDEX (PRIMARY) WHERE user_id IN (`+repeat("?", len(args))+`)`, args...)
		numbers = append(numbers, func(rows *sql.Rows) error {
			var user string
			var last int64
			err := into(rows, &user, &last)
			p.last[user] = last - messages[user]
			return err
		})
	}
	err := p.c.readDeliveries(&p.todo, p.heads, numbers...)
	p.todo = script{}
	return err
}

// keepRest makes the work of the deliveries, or their outcomes, and commits.
func (p *putting) keepRest(shard int) error {
	var requests []model.Seq
	expire := false
	done := map[model.SourceID]int64{}
	for _, i := range p.inserted {
		r := &p.requests[i]
		requests = append(requests, p.heads[r.Key].Seq)
		expire = expire || r.ExpiresAt != 0
		for j := range r.Deliveries {
			if r.Deliveries[j].Done {
				done[r.Deliveries[j].Channel]++
			}
		}
	}
	// The numbers of the requests stand three times in what follows.
	if err := p.c.makeRoom(&p.todo, 4096+60*len(requests)+100*len(done)); err != nil {
		return err
	}
	from := `FROM posthouse_request r FORCE INDEX (PRIMARY) STRAIGHT_JOIN posthouse_delivery d FORCE INDEX (posthouse_delivery_purpose)
		ON d.request = r.seq WHERE r.seq IN (` + list(requests) + `)`
	p.todo.add(`INSERT INTO posthouse_work (seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay)
		SELECT d.seq, d.channel, 0, 0, 0, greatest(@now, r.not_before), 0, 0, 0, 0, 0, 0 ` + from + ` AND d.done = 0`)
	if len(done) > 0 {
		p.todo.add(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
			SELECT d.seq, d.channel, 0, @now, 0, 0, 0, 0 ` + from + ` AND d.done = 1`)
	}
	if expire {
		p.todo.add(`INSERT INTO posthouse_expiry (expires_at, seq) SELECT r.expires_at, d.seq ` + from + ` AND r.expires_at <> 0 AND d.done = 0`)
	}
	count(&p.todo, done, shard)
	return p.c.commit(&p.todo, crashpoint.BeforePutCommit)
}

// RequestByKey finds what is kept under an idempotency key.
func (s *Store) RequestByKey(ctx context.Context, key string) (model.RequestHead, error) {
	const op = "find request"
	var found *head
	err := s.read(ctx, op, func(c *call) error {
		heads, err := c.readHeads(&script{}, [][]byte{[]byte(key)})
		if err != nil {
			return err
		}
		if found = heads[key]; found == nil {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no request has that key")}
		}
		return c.readDeliveries(&script{}, heads)
	})
	if err != nil {
		return model.RequestHead{}, err
	}
	return found.RequestHead, nil
}

// readHeads sends todo, and reads what is kept under keys, but for deliveries.
func (c *call) readHeads(todo *script, keys [][]byte) (map[string]*head, error) {
	args := make([]any, len(keys))
	for i := range keys {
		args[i] = keys[i]
	}
	heads := make(map[string]*head, len(keys))
	if err := c.makeRoom(todo, keyRoom*len(keys)); err != nil {
		return nil, err
	}
	todo.add(`SELECT seq, id, put_by, idem_key, content_key, content_fields, success, choices
		FROM posthouse_request FORCE INDEX (posthouse_request_key) WHERE idem_key IN (`+repeat("?", len(keys))+`)`, args...)
	return heads, c.query(todo, func(rows *sql.Rows) error {
		h := &head{}
		var id, fields, success, choices []byte
		var key, contentKey string
		err := into(rows, &h.Seq, &id, &h.putBy, &key, &contentKey, &fields, &success, &choices)
		if err != nil {
			return err
		}
		h.ID = uuid.UUID(id)
		heads[key] = h
		if h.Content, err = columns.ParseContent(contentKey, fields); err != nil {
			return err
		}
		if err := columns.ParseJSON(success, &h.Success); err != nil {
			return err
		}
		return columns.ParseJSON(choices, &h.Choices)
	})
}

// readDeliveries sends todo, whose rows go to before, and reads the deliveries of
// what is kept.
func (c *call) readDeliveries(todo *script, heads map[string]*head, before ...func(*sql.Rows) error) error {
	bySeq := make(map[model.Seq]*head, len(heads))
	requests := make(map[model.Seq]bool, len(heads))
	for _, h := range heads {
		bySeq[h.Seq], requests[h.Seq] = h, true
	}
	if err := c.makeRoom(todo, 20*len(heads)); err != nil {
		return err
	}
	todo.add(`SELECT d.request, d.seq, d.id, s.name, d.purpose, d.done, d.reason
		FROM posthouse_delivery d FORCE INDEX (posthouse_delivery_purpose) JOIN posthouse_source s ON s.id = d.channel
		WHERE d.request IN (` + list(sorted(requests)) + `)`)
	err := c.query(todo, append(before, func(rows *sql.Rows) error {
		var d model.DeliveryHead
		var request model.Seq
		var id []byte
		err := into(rows, &request, &d.Seq, &id, &d.Channel, &d.Purpose, &d.Done, &d.Reason)
		if err != nil {
			return err
		}
		d.ID, d.Channel = uuid.UUID(id), columns.ChannelOf(d.Channel)
		bySeq[request].Deliveries = append(bySeq[request].Deliveries, d)
		return nil
	})...)
	for _, h := range heads {
		columns.SortDeliveries(h.Choices, h.Deliveries)
	}
	return err
}

// most is what one statement weighs at most, unless one row weighs more.
const most = 1 << 20

// insert adds statements that insert rows, each of so many that it fits into one
// packet, and sends what does not fit with them.
func (c *call) insert(todo *script, beginning, values, end string, rows [][]any) error {
	room := c.packet - packetExtra
	for len(rows) > 0 {
		weight, n := len(beginning)+len(end), 0
		for ; n < min(len(rows), packetRows); n++ {
			row := len(values) + weigh(rows[n])
			if n > 0 && weight+row > min(most, room) {
				break
			}
			weight += row
		}
		if weight > room {
			return &model.Error{Code: model.CodeRejected, Op: "put requests",
				Err: errors.New("a request does not fit into the server's max_allowed_packet")}
		}
		if err := c.makeRoom(todo, weight); err != nil {
			return err
		}
		todo.add(beginning+repeat(values, n)+end, slices.Concat(rows[:n]...)...)
		rows = rows[n:]
	}
	return nil
}

// keyRoom is what a key or the id of a user has on the wire, at most.
const keyRoom = 2*max(model.MaxIdempotencyKey, model.MaxRecipientID) + 20

// makeRoom sends what has been added where so much more would not fit into one
// packet with it.
func (c *call) makeRoom(todo *script, weight int) error {
	if todo.weight+weight > c.packet-packetExtra {
		return c.send(todo)
	}
	return nil
}

// send runs what has been added so far.
func (c *call) send(todo *script) error {
	if todo.text.Len() == 0 {
		return nil
	}
	_, err := c.exec(todo)
	*todo = script{}
	return err
}

// weigh is what values have on the wire, at most.
func weigh(values []any) int {
	n := 20 * len(values)
	for _, value := range values {
		switch v := value.(type) {
		case []byte:
			n += len(v) + escapes(v)
		case string:
			n += len(v) + escapes([]byte(v))
		}
	}
	return n
}

// escapes counts the bytes that are two in a statement.
func escapes(value []byte) (n int) {
	for _, special := range []byte("\x00\n\r\x1a'\"\\") {
		n += bytes.Count(value, []byte{special})
	}
	return n
}
