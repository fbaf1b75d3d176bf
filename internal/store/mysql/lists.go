package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// A list is made in two steps: a page of places, off one index, and then what
// is shown of each.
func showPage(places string) string { return `WITH page (due, seq) AS (` + places + `)` + show }

const show = `
	SELECT page.due, m.seq, m.id, s.name, coalesce(w.state, 3), coalesce(o.retry_count, w.retry_count),
		CASE WHEN w.state = 0 AND w.retry_count > 0 THEN w.due_at ELSE 0 END, m.received_at,
		coalesce(o.finished_at, CASE WHEN w.state = 2 THEN a.ended_at END, 0), coalesce(a.error, ''),
		m.content_type, m.size, m.check_note, coalesce(o.replay, w.replay)
	FROM page STRAIGHT_JOIN posthouse_message m FORCE INDEX (PRIMARY) ON m.seq = page.seq
	JOIN posthouse_source s ON s.id = m.source
	LEFT JOIN posthouse_work w ON w.seq = m.seq
	LEFT JOIN posthouse_outcome o ON o.seq = m.seq
	LEFT JOIN posthouse_attempt a ON a.seq = w.seq AND a.replay = w.replay AND a.n = w.retry_count
	ORDER BY page.due DESC, m.seq DESC`

// ListMessages returns one page, newest first.
func (s *Store) ListMessages(ctx context.Context, p model.ListParams) (page model.MessagePage, err error) {
	const op = "list messages"
	if p.Limit < 1 {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("a page of less than one message")}
	}
	if p.Filter < model.AnyState || p.Filter > model.OnlyFailed {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("no such filter")}
	}
	if p.After == (model.Cursor{}) {
		p.After = model.Cursor{DueAt: math.MaxInt64, Seq: math.MaxInt64}
	}
	if p.Filter == model.AnyState || p.Filter == model.OnlySuccess {
		p.After.Seq = min(p.After.Seq, model.DeliverySeqs) // outcomes of deliveries follow
	}
	err = s.read(ctx, op, func(c *call) error {
		page = model.MessagePage{}
		if p.Filter == model.AnyState || p.Filter == model.OnlySuccess {
			var one script
			one.add(showPage(bySeq(p)))
			return c.query(&one, collect(&page, p.Limit))
		}
		return c.listWork(p, &page)
	})
	if err != nil {
		return model.MessagePage{}, err
	}
	return page, nil
}

// collect scans a page, and one row more where another one follows.
func collect(page *model.MessagePage, limit int) func(*sql.Rows) error {
	var last model.Cursor
	return func(rows *sql.Rows) error {
		if len(page.Items) == limit {
			page.Next = &last
			return nil
		}
		view, dueAt, err := scanView(rows)
		last = model.Cursor{DueAt: dueAt, Seq: view.Seq}
		page.Items = append(page.Items, view)
		return err
	}
}

// bySeq is the query of the places of a page of messages or outcomes: in the
// order of their primary key, or of the source's branch of the index. It holds
// numbers only.
func bySeq(p model.ListParams) string {
	table := "posthouse_message"
	if p.Filter == model.OnlySuccess {
		table = "posthouse_outcome"
	}
	if p.Source == 0 {
		return fmt.Sprintf(`SELECT 0, seq FROM %s FORCE INDEX (PRIMARY) WHERE seq < %d ORDER BY seq DESC LIMIT %d`,
			table, p.After.Seq, p.Limit+1)
	}
	also := ""
	if p.Filter == model.OnlySuccess {
		also = "AND delivered = 0" // as the index has it
	}
	return fmt.Sprintf(`SELECT 0, seq FROM %s FORCE INDEX (%[1]s_source) WHERE source = %d %s AND seq < %d ORDER BY seq DESC LIMIT %d`,
		table, p.Source, also, p.After.Seq, p.Limit+1)
}

// conditions are what a filter lets pass.
var conditions = map[model.Filter]struct {
	state  model.State
	filter string
}{
	model.OnlyPending:    {model.Pending, "retry_count = 0"},
	model.OnlyRetrying:   {model.Pending, "retry_count > 0"},
	model.OnlyProcessing: {model.Processing, ""},
	model.OnlyFailed:     {model.Failed, ""},
}

// spanOf is the work of one source in a list.
func spanOf(p model.ListParams, source model.SourceID, slots []model.Slot) span {
	passes := conditions[p.Filter]
	return span{queue: source, state: passes.state, filter: passes.filter, slots: slots, descending: true,
		after: place{dueAt: p.After.DueAt, seq: p.After.Seq}, until: strconv.FormatInt(math.MinInt64+1, 10)}
}

// noKeys is the one slot of a source that never had keys.
var noKeys = []model.Slot{0}

// listWork lists work of one source or all. Where none of them ever had keys,
// the places of a page come off the one branch of each, merged in the statement
// that shows them.
func (c *call) listWork(p model.ListParams, page *model.MessagePage) error {
	keys := map[model.SourceID]model.KeyID{} // the last of each source that has any
	scanKeys := func(rows *sql.Rows) error {
		var source model.SourceID
		var id model.KeyID
		err := into(rows, &source, &id)
		keys[source] = id
		return err
	}
	sources := []model.SourceID{p.Source}
	var look script
	if p.Source != 0 {
		look.add(`SELECT queue, max(id) FROM posthouse_key WHERE queue = ? GROUP BY queue`, p.Source)
		look.add(showPage(work(p, sources)))
		err := c.query(&look, scanKeys, collect(page, p.Limit))
		if err != nil || len(keys) == 0 {
			return err
		}
	} else {
		sources = nil
		look.add(`SELECT id FROM posthouse_source WHERE tenant = 0 ORDER BY id`)
		look.add(`SELECT queue, max(id) FROM posthouse_key GROUP BY queue`)
		if err := c.query(&look, scanID(&sources), scanKeys); err != nil || len(sources) == 0 {
			return err
		}
		if len(keys) == 0 {
			var one script
			one.add(showPage(work(p, sources)))
			return c.query(&one, collect(page, p.Limit))
		}
	}
	*page = model.MessagePage{}
	return c.listKeyed(p, sources, keys, page)
}

// work is the query of the places of a page of works of sources without keys.
func work(p model.ListParams, sources []model.SourceID) string {
	branches := make([]string, len(sources))
	for i, source := range sources {
		branches[i] = "(SELECT due_at, seq FROM (" + spanOf(p, source, noKeys).query(noKeys, p.Limit+1) + ") branch)"
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return fmt.Sprintf(`SELECT due_at, seq FROM (%s) merged ORDER BY due_at DESC, seq DESC LIMIT %d`,
		strings.Join(branches, " UNION ALL "), p.Limit+1)
}

// listKeyed lists work that may stand in many slots. It finds the places first,
// and shows them as they stood at the same time.
func (c *call) listKeyed(p model.ListParams, sources []model.SourceID, keys map[model.SourceID]model.KeyID, page *model.MessagePage) error {
	var begin script
	begin.add(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	begin.add(`START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`)
	if _, err := c.exec(&begin); err != nil {
		return err
	}
	limit := p.Limit + 1
	var best []place
	until := ""
	for _, source := range sources {
		slots := slices.Clone(noKeys)
		for slot := model.Slot(model.Slots); slot < model.Slot(keys[source]+1)*model.Slots; slot++ {
			slots = append(slots, slot)
		}
		sp := spanOf(p, source, slots)
		if until != "" {
			sp.until = until
		}
		var one script
		found, err := c.first(sp, limit, &one)
		if err != nil {
			return err
		}
		best = append(best, found...)
		slices.SortFunc(best, func(a, b place) int { return b.compare(a) })
		if len(best) >= limit {
			best = best[:limit]
			until = strconv.FormatInt(int64(best[limit-1].dueAt), 10)
		}
	}
	if len(best) == 0 {
		return c.rollback()
	}
	var show script
	show.add(showPage(`SELECT due_at, seq FROM posthouse_work FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqsOf(best)) + `)`))
	show.add(`COMMIT`)
	return c.query(&show, collect(page, p.Limit))
}

func scanView(rows *sql.Rows) (v model.MessageView, dueAt model.Micros, err error) {
	var id []byte
	err = into(rows, &dueAt, &v.Seq, &id, &v.Source, &v.State, &v.RetryCount, &v.NextRetryAt, &v.ReceivedAt, &v.FinishedAt,
		&v.Error, &v.ContentType, &v.Size, &v.Check, &v.Replay)
	copy(v.ID[:], id)
	return v, dueAt, err
}

// Message finds one message with its attempts, as they stood at one time.
func (s *Store) Message(ctx context.Context, id uuid.UUID) (view model.MessageView, attempts []model.AttemptView, err error) {
	const op = "show message"
	err = s.read(ctx, op, func(c *call) error {
		attempts = nil
		found := false
		var show script
		show.add(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		show.add(`START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`)
		show.add(showPage(`SELECT 0, seq FROM posthouse_message WHERE id = ?`), id[:])
		show.add(`SELECT a.replay, a.n, a.started_at, a.ended_at, a.outcome, a.reason, a.error, a.http_status, a.code
			FROM posthouse_message m JOIN posthouse_attempt a ON a.seq = m.seq WHERE m.id = ?
			UNION ALL
			SELECT o.replay, o.n, o.started_at, o.finished_at, 'success', '', '', o.http_status, ''
			FROM posthouse_message m JOIN posthouse_outcome o ON o.seq = m.seq WHERE m.id = ? AND o.n > 0
			ORDER BY 1, 2`, id[:], id[:])
		show.add(`COMMIT`)
		err := c.query(&show, func(rows *sql.Rows) (err error) {
			view, _, err = scanView(rows)
			found = true
			return err
		}, func(rows *sql.Rows) error {
			var a model.AttemptView
			err := into(rows, &a.Replay, &a.N, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Reason, &a.Error, &a.HTTPStatus, &a.Code)
			attempts = append(attempts, a)
			return err
		})
		if err == nil && !found {
			return notFound(op)
		}
		return err
	})
	if err != nil {
		return model.MessageView{}, nil, err
	}
	return view, attempts, nil
}

// Body returns the exact bytes.
func (s *Store) Body(ctx context.Context, id uuid.UUID) (model.Message, error) {
	const op = "read body"
	var message *model.Message
	err := s.read(ctx, op, func(c *call) error {
		message = nil
		var one script
		one.add(`SELECT `+messageColumns+` FROM posthouse_message m WHERE m.id = ?`, id[:])
		err := c.query(&one, func(rows *sql.Rows) (err error) {
			message, err = scanMessage(rows)
			return err
		})
		if err == nil && message == nil {
			return notFound(op)
		}
		return err
	})
	if err != nil {
		return model.Message{}, err
	}
	return *message, nil
}

func notFound(op string) error {
	return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no message has that id")}
}

// Stats counts per source.
func (s *Store) Stats(ctx context.Context) (stats []model.SourceStats, err error) {
	err = s.read(ctx, "count messages", func(c *call) error {
		stats = nil
		var all script
		all.add(setNow)
		all.add(countAll)
		return c.query(&all, func(rows *sql.Rows) error {
			var c model.SourceStats
			var now, oldest model.Micros
			err := into(rows, append(sourceFields(&c.Source), &now, &c.Pending, &c.Retrying, &c.Due, &oldest,
				&c.Processing, &c.Failed, &c.Dead, &c.Uncertain, &c.Cancelled, &c.Success)...)
			if c.Due > 0 {
				c.OldestDueAge = now.Sub(oldest)
			}
			stats = append(stats, c)
			return err
		})
	})
	return stats, err
}

const countAll = `SELECT ` + sourceColumns + `, @now, coalesce(w.pending, 0), coalesce(w.retrying, 0), coalesce(w.due, 0), coalesce(w.oldest, 0),
		coalesce(w.processing, 0), coalesce(w.failed, 0), coalesce(w.dead, 0), coalesce(w.uncertain, 0), coalesce(w.cancelled, 0),
		(SELECT coalesce(sum(succeeded), 0) FROM posthouse_counter c WHERE c.source = s.id)
	FROM posthouse_source s` + withKeys + ` LEFT JOIN (
		SELECT queue,
			sum(state = 0 AND retry_count = 0) AS pending,
			sum(state = 0 AND retry_count > 0) AS retrying,
			sum(state = 0 AND due_at <= @now) AS due,
			min(CASE WHEN state = 0 AND due_at <= @now THEN due_at END) AS oldest,
			sum(state = 1) AS processing,
			sum(state = 2) AS failed,
			sum(state = 4) AS dead,
			sum(state = 5) AS uncertain,
			sum(state = 6) AS cancelled
		FROM posthouse_work GROUP BY queue
	) w ON w.queue = s.id
	ORDER BY s.name`
