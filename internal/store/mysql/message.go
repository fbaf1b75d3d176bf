package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Bounds of one packet. A packet holds whole rows; a byte of a value may be
// two there.
const (
	packetRows  = 512
	packetExtra = 1 << 10 // the words of the statements
	rowExtra    = 240     // the numbers of a row, its key, and its quotes
	// headerRoom is what MaxBody leaves for all of a message but its body.
	headerRoom = 128 << 10
)

// MaxBody is the size of the largest body that can be kept whatever its bytes
// are, as the server's max_allowed_packet has it: below half of that. What is
// larger may be refused by PutMessages with CodeRejected.
func (s *Store) MaxBody(ctx context.Context) (int64, error) {
	packet := 0
	err := s.read(ctx, "read max_allowed_packet", func(c *call) error {
		var one script
		one.add(`SELECT @@max_allowed_packet`)
		return c.query(&one, func(rows *sql.Rows) error { return into(rows, &packet) })
	})
	return int64(max(0, (packet-packetExtra-rowExtra)/2-headerRoom)), err
}

// PutMessages keeps messages durably, each id once: in one transaction, of as
// many packets as the rows need. Work, or an outcome, is made only for the
// messages that this very try inserted; put_by tells which those are.
func (s *Store) PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	twins := columns.Twins(messages)
	err = s.use(ctx, putTimeout(messages), "put messages", func(c *call) error {
		var todo script
		todo.add(`START TRANSACTION`)
		todo.add(setNow)
		kept := messages
		duplicates = nil
		if len(twins) > 0 {
			owners, err := c.takeKeys(&todo, twins)
			if err != nil {
				return err
			}
			todo = script{}
			duplicates = columns.Duplicates(messages, twins, owners)
			if kept = columns.Without(messages, duplicates); len(kept) == 0 {
				return c.rollback() // the owners' messages have been committed
			}
		}
		if err := c.put(&todo, put, kept, s.shard); err != nil {
			return err
		}
		return c.commit(&todo, crashpoint.BeforePutCommit)
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterPutCommit)
	return duplicates, nil
}

// put adds what keeps messages to todo, and sends all but the last packet.
func (c *call) put(todo *script, put model.Put, messages []model.NewMessage, shard int) error {
	parts, err := c.parts(messages)
	if err != nil {
		return err
	}
	try := rand.Int64N(math.MaxInt64/2) + 1
	todo.add(setLow)
	// The places of messages tell their keys where these differ.
	sameKey := !slices.ContainsFunc(messages, func(m model.NewMessage) bool { return m.Key != messages[0].Key })
	for i, part := range parts {
		if put == model.PutPending && !sameKey {
			insertMessages(todo, part, try, 1)
			insertWork(todo, part, try)
			try += packetRows
		} else {
			insertMessages(todo, part, try, 0)
		}
		if i == len(parts)-1 {
			break // what follows travels with it
		}
		if _, err := c.exec(todo); err != nil {
			return err
		}
		*todo = script{}
	}
	switch {
	case put == model.PutSuccess:
		todo.add(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
			SELECT seq, source, 0, received_at, 0, 0, 0, 0 `+inserted, try)
		todo.add(`INSERT INTO posthouse_counter (source, shard, succeeded) SELECT source, ?, count(*) `+inserted+` GROUP BY source`+counting,
			shard, try)
	case sameKey:
		todo.add(`INSERT INTO posthouse_work (seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay)
			SELECT seq, source, ?, ?, 0, received_at, 0, 0, 0, 0, 0, 0 `+inserted, messages[0].Key.Slot, messages[0].Key.Hash, try)
	}
	return nil
}

// putTimeout gives a put that the door never makes, of more than 4 MiB, a second
// more for each 4 MiB: with a binary log each byte is written several times.
func putTimeout(messages []model.NewMessage) time.Duration {
	bytes := 0
	for i := range messages {
		bytes += payload(&messages[i])
	}
	return writeTimeout + time.Duration(bytes>>22)*time.Second
}

// commit ends a transaction with what is still to be done, in one packet, except
// in a build in which a test wants to crash before the commit.
func (c *call) commit(todo *script, crash string) error {
	if crashpoint.Enabled {
		if todo.text.Len() > 0 {
			if _, err := c.exec(todo); err != nil {
				return err
			}
		}
		crashpoint.Hit(crash)
		*todo = script{}
	}
	todo.add(`COMMIT`)
	_, err := c.exec(todo)
	return err
}

// parts cuts messages into runs that fit into one packet each.
func (c *call) parts(messages []model.NewMessage) ([][]model.NewMessage, error) {
	room := c.packet - packetExtra
	var parts [][]model.NewMessage
	from, used := 0, 0
	for i := range messages {
		m := &messages[i]
		size := rowExtra + 2*payload(m)
		if size > room {
			size = rowExtra + escaped(m)
		}
		if size > room {
			return nil, &model.Error{Code: model.CodeRejected, Op: "put messages",
				Err: fmt.Errorf("a message of %d bytes does not fit into the server's max_allowed_packet of %d", payload(m), c.packet)}
		}
		if i > from && (used+size > room || i-from == packetRows) {
			parts = append(parts, messages[from:i])
			from, used = i, 0
		}
		used += size
	}
	return append(parts, messages[from:]), nil
}

// payload is what a message weighs.
func payload(m *model.NewMessage) int {
	return len(m.Body) + len(m.Headers) + len(m.Query) + len(m.ContentType) + len(m.Check)
}

// escaped is what it weighs in a statement.
func escaped(m *model.NewMessage) int {
	n := payload(m)
	for _, b := range [][]byte{m.Body, m.Headers, m.Query, []byte(m.ContentType), []byte(m.Check)} {
		for _, special := range []byte("\x00\n\r\x1a'\"\\") {
			n += bytes.Count(b, []byte{special})
		}
	}
	return n
}

// insertMessages numbers the messages in put_by, from try in the given steps.
func insertMessages(todo *script, messages []model.NewMessage, try, step int64) {
	args := make([]any, 0, 9*len(messages))
	for i := range messages {
		m := &messages[i]
		args = append(args, m.ID[:], m.Source, try, len(m.Body), columns.Text(m.ContentType), columns.Text(m.Check),
			columns.Bytes(m.Headers), columns.Bytes(m.Query), columns.Bytes(m.Body))
		try += step
	}
	todo.add(`INSERT INTO posthouse_message (received_at, id, source, put_by, size, content_type, check_note, headers, query, body) VALUES `+
		repeat(`(@now,?,?,?,?,?,?,?,?,?)`, len(messages))+` ON DUPLICATE KEY UPDATE id = id`, args...)
}

// insertWork inserts the work of messages that were numbered from try.
func insertWork(todo *script, messages []model.NewMessage, try int64) {
	slots, hashes := make([]model.Slot, len(messages)), make([]int64, len(messages))
	for i := range messages {
		slots[i], hashes[i] = messages[i].Key.Slot, messages[i].Key.Hash
	}
	todo.add(`INSERT INTO posthouse_work (seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay)
		SELECT seq, source, elt(put_by - ?, `+list(slots)+`), elt(put_by - ?, `+list(hashes)+`), 0, received_at, 0, 0, 0, 0, 0, 0
		FROM posthouse_message FORCE INDEX (PRIMARY) WHERE seq > @low AND put_by BETWEEN ? AND ?`,
		try-1, try-1, try, try+int64(len(messages))-1)
}

// inserted are the messages that this try inserted: above all that were there
// before.
const (
	setLow   = `SET @low = (SELECT coalesce(max(seq), 0) FROM posthouse_message)`
	inserted = `FROM posthouse_message FORCE INDEX (PRIMARY) WHERE seq > @low AND put_by = ?`
)

// counting ends a statement that adds to the counters of succeeded messages.
const counting = ` ON DUPLICATE KEY UPDATE succeeded = succeeded + VALUES(succeeded)`

// count adds to the counters of succeeded messages, in the order of sources.
func count(todo *script, succeeded map[model.SourceID]int64, shard int) {
	if len(succeeded) == 0 {
		return
	}
	var args []any
	for _, source := range slices.Sorted(maps.Keys(succeeded)) {
		args = append(args, source, shard, succeeded[source])
	}
	todo.add(`INSERT INTO posthouse_counter (source, shard, succeeded) VALUES `+repeat(`(?,?,?)`, len(succeeded))+
		counting, args...)
}

// Columns of a whole message m, as scanMessage wants them.
const messageColumns = `m.seq, m.id, m.source, m.received_at, m.content_type, m.check_note, m.headers, m.query, m.body`

func scanMessage(rows *sql.Rows) (*model.Message, error) {
	m := &model.Message{}
	var id []byte
	err := into(rows, &m.Seq, &id, &m.Source, &m.ReceivedAt, &m.ContentType, &m.Check, &m.Headers, &m.Query, &m.Body)
	copy(m.ID[:], id)
	return m, err
}
