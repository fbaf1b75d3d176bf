package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Pages of deliveries, the newest first. $1 is how many, $2 the seq to begin
// under, $3 the first seq that may be, $4 and $5 bound when it was made, $6 is the
// channel, where one is asked for. By state, the newest of each channel are merged.
const (
	pageOfAllDeliveries = `WITH page (seq) AS MATERIALIZED (SELECT seq FROM posthouse_delivery
		WHERE seq < $2 AND seq >= $3 AND created_at >= $4 AND created_at < $5 ORDER BY seq DESC LIMIT $1)`
	pageOfChannel = `WITH page (seq) AS MATERIALIZED (SELECT seq FROM posthouse_delivery
		WHERE channel = $6 AND seq + 0 < $2 AND seq + 0 >= $3 AND created_at >= $4 AND created_at < $5 ORDER BY seq + 0 DESC LIMIT $1)`
	pageByState = `WITH q (id) AS (SELECT id FROM posthouse_source WHERE tenant = 1%channel), page (seq) AS MATERIALIZED (
			SELECT x.seq FROM q CROSS JOIN LATERAL (
				SELECT p.seq FROM posthouse_%table p
				CROSS JOIN LATERAL (SELECT created_at FROM posthouse_delivery WHERE seq = p.seq OFFSET 0) d
				WHERE %state AND p.seq + 0 < $2 AND p.seq + 0 >= $3 AND d.created_at >= $4 AND d.created_at < $5
				ORDER BY p.seq + 0 DESC LIMIT $1) x
			ORDER BY x.seq DESC LIMIT $1)`
)

// pagesByState says where deliveries of a status are: as the partial indexes have
// it, but what is being worked on, which is never much.
var pagesByState = func() map[model.DeliveryStatus]string {
	indexed := func(number int) [2]string { // see posthouse_work_delivery
		return [2]string{"work", `p.queue = q.id AND (CASE WHEN p.state = 0 AND p.retry_count > 0 THEN 9 ELSE p.state END) = ` +
			strconv.Itoa(number) + ` AND p.seq >= 4611686018427387904 AND p.state <> 1`}
	}
	all := map[model.DeliveryStatus]string{}
	for status, from := range map[model.DeliveryStatus][2]string{
		model.DeliveryPending:    indexed(int(model.Pending)),
		model.DeliveryProcessing: {"work", `p.queue = q.id AND p.state = 1`},
		model.DeliveryRetryWait:  indexed(9),
		model.DeliverySucceeded:  {"outcome", `p.source = q.id AND p.delivered_at = 0`},
		model.DeliveryDelivered:  {"outcome", `p.source = q.id AND p.delivered_at <> 0`},
		model.DeliveryFailed:     indexed(int(model.Failed)),
		model.DeliveryDead:       indexed(int(model.Dead)),
		model.DeliveryUncertain:  indexed(int(model.Uncertain)),
		model.DeliveryCancelled:  indexed(int(model.Cancelled)),
	} {
		all[status] = strings.NewReplacer("%table", from[0], "%state", from[1]).Replace(pageByState)
	}
	return all
}()

var errPage = errors.New("a page of less than one delivery")

// ListDeliveries returns one page, newest first.
func (s *Store) ListDeliveries(ctx context.Context, p model.DeliveryListParams) (page model.DeliveryPage, err error) {
	const op = "list deliveries"
	sql := pageOfAllDeliveries
	if p.Channel != 0 {
		sql = pageOfChannel
	}
	if p.Status != "" {
		of := ""
		if p.Channel != 0 {
			of = " AND id = $6"
		}
		sql = strings.ReplaceAll(pagesByState[p.Status], "%channel", of)
	}
	switch {
	case sql == "":
		err = errFilter
	case p.Limit < 1:
		err = errPage
	}
	if err != nil {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: err}
	}
	var views []model.DeliveryView
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		below, first, err := seqsBetween(ctx, c, p.From, p.To)
		if err != nil {
			return err
		}
		if p.Before != 0 {
			below = min(below, p.Before)
		}
		args := []any{p.Limit + 1, below, first, p.From, model.Micros(math.MaxInt64)}
		if p.To != 0 {
			args[4] = p.To
		}
		if p.Channel != 0 {
			args = append(args, p.Channel)
		}
		// Planned for these very arguments, as other lists are, and in the order of
		// an index, also where the statistics do not know yet how much there is.
		inOrder := setLocal("enable_bitmapscan", "off")
		if c.local == "" {
			c.local = `SELECT ` + setLocal("plan_cache_mode", "force_custom_plan") + `, ` + inOrder
		} else {
			c.local += `, ` + inOrder
		}
		views, err = queryDeliveries(ctx, c, sql, args...)
		return err
	})
	if err != nil {
		return model.DeliveryPage{}, err
	}
	slices.Reverse(views)
	page.Items = views
	if len(views) > p.Limit { // one more than was asked for
		page.Items = views[:p.Limit:p.Limit]
		page.Next = page.Items[p.Limit-1].Seq
	}
	return page, nil
}

// seqsBetween bounds the seqs of deliveries that were made between two times,
// which may be 0. Not all between the bounds were.
func seqsBetween(ctx context.Context, c conn, from, to model.Micros) (below, first model.Seq, err error) {
	below = math.MaxInt64
	if from == 0 && to == 0 {
		return below, 0, nil
	}
	var low, high model.Seq
	err = c.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&low, &high) },
		`SELECT coalesce((SELECT seq FROM posthouse_delivery ORDER BY seq LIMIT 1), 1),
			coalesce((SELECT seq FROM posthouse_delivery ORDER BY seq DESC LIMIT 1), 0)`)
	if err != nil || high == 0 {
		return below, 0, err
	}
	begins := func(at model.Micros) (model.Seq, error) {
		return columns.SeqAt(low, high, at, func(from model.Seq) (seq model.Seq, when model.Micros, found bool, err error) {
			err = c.query(ctx, func(rows pgx.Rows) error {
				found = true
				return rows.Scan(&seq, &when)
			}, `SELECT seq, created_at FROM posthouse_delivery WHERE seq >= $1 ORDER BY seq LIMIT 1`, from)
			return seq, when, found, err
		})
	}
	if from != 0 {
		first, err = begins(from.Add(-columns.Disorder))
	}
	if err == nil && to != 0 {
		below, err = begins(to.Add(columns.Disorder))
	}
	return below, first, err
}
