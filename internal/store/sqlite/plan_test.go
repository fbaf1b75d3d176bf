package sqlite

import (
	"database/sql"
	"strings"
	"testing"
)

// plan is what SQLite will do, step by step.
func plan(t *testing.T, s *Store, query string, args ...any) (steps []string) {
	t.Helper()
	rows, err := s.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	err = each(rows, err, func(rows *sql.Rows) error {
		var id, parent, unused int
		var step string
		err := rows.Scan(&id, &parent, &unused, &step)
		steps = append(steps, step)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestClaimsReadOnlyWhatTheyTake(t *testing.T) {
	s, queue := ready(t)
	for name, c := range map[string]struct {
		query string
		args  []any
		want  []string // the steps on work
	}{
		"IN-09 the head of a slot": {headOfSlot, []any{queue, 0, 0, 1, 10},
			[]string{"USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot=? AND due_at>? AND due_at<?)"}},
		"IN-06 on in a slot": {onInSlot, []any{queue, 0, 1, 0, -1, 10},
			[]string{"USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot=? AND due_at>? AND due_at<?)"}},
		"IN-06 on in a slot where keys block": {onInSlotWithKeys, []any{queue, 0, 1, 0, -1, 10, "[]"},
			[]string{"USING INDEX posthouse_work_due (queue=? AND state=? AND slot=? AND due_at>? AND due_at<?)"}},
		"IN-06 the head of a key": {headOfKey, []any{queue, 1},
			[]string{"USING INDEX posthouse_work_key (queue=? AND key_hash=?)"}},
		"IN-22 what is elsewhere": {"SELECT " + elsewhere, []any{queue, 256, 512},
			[]string{"USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot<?)", "USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot>?)"}},
		"IN-09 which slots are due": {dueSlots, []any{queue, 0, 1, "[]", 1, misplaced, 0},
			[]string{"USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot<?)", "USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot>?)",
				"USING COVERING INDEX posthouse_work_due (queue=? AND state=? AND slot=? AND due_at>? AND due_at<?)"}},
	} {
		t.Run(name, func(t *testing.T) {
			steps := plan(t, s, c.query, c.args...)
			text := strings.Join(steps, "\n")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("no step is %q", want)
				}
			}
			found := 0
			for _, step := range steps {
				if strings.HasPrefix(step, "SEARCH posthouse_work") {
					found++
				}
			}
			if found != len(c.want) || strings.Contains(text, "SCAN posthouse_work") || strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}
