package migrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func files(nameAndText ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(nameAndText); i += 2 {
		fsys[nameAndText[i]] = &fstest.MapFile{Data: []byte(nameAndText[i+1])}
	}
	return fsys
}

func TestLoadSplitsStatementsAndOrdersVersions(t *testing.T) {
	got, err := Load(files(
		"0002_more.up.sql", "C;",
		"0002_more.down.sql", "D;",
		"0001_first.up.sql", "-- why\nA -- next to nothing\n;\n-- next\n\n  B;\n-- next\n",
		"0001_first.down.sql", "Z\r\n-- next\r\nY",
		"README.md", "ignored",
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []Migration{
		{Version: 1, Name: "first", Up: []string{"-- why\nA -- next to nothing\n;", "B;"}, Down: []string{"Z", "Y"}},
		{Version: 2, Name: "more", Up: []string{"C;"}, Down: []string{"D;"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefusesMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"odd name":   {[]string{"1_a.up.sql", "A"}, "not named"},
		"half":       {[]string{"0001_a.up.sql", "A"}, "is missing"},
		"gap":        {[]string{"0002_a.up.sql", "A", "0002_a.down.sql", "B"}, "0001 is missing"},
		"two names":  {[]string{"0001_a.up.sql", "A", "0001_b.down.sql", "B"}, "named both"},
		"empty file": {[]string{"0001_a.up.sql", "A", "0001_a.down.sql", " \n-- next\n"}, "no statement"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(files(c.files...)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// database is a Driver over a slice.
type database struct {
	mu      sync.Mutex
	applied []model.SchemaVersion
	fail    string // statement that fails
	ran     []string
}

func (d *database) Applied(context.Context) ([]model.SchemaVersion, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.applied), nil
}

func (d *database) Locked(ctx context.Context, change func(context.Context, Session) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return change(ctx, session{d})
}

type session struct{ d *database }

func (s session) Applied(context.Context) ([]model.SchemaVersion, error) { return s.d.applied, nil }

func (s session) run(statements []string) error {
	for _, statement := range statements {
		if statement == s.d.fail {
			return errors.New("no")
		}
		s.d.ran = append(s.d.ran, statement)
	}
	return nil
}

func (s session) Apply(_ context.Context, m Migration) error {
	if err := s.run(m.Up); err != nil {
		return err
	}
	s.d.applied = append(s.d.applied, model.SchemaVersion{Version: m.Version, Name: m.Name, AppliedAt: 1})
	return nil
}

func (s session) Revert(_ context.Context, m Migration) error {
	if err := s.run(m.Down); err != nil {
		return err
	}
	s.d.applied = s.d.applied[:len(s.d.applied)-1]
	return nil
}

var known = []Migration{
	{Version: 1, Name: "a", Up: []string{"A"}, Down: []string{"a"}},
	{Version: 2, Name: "b", Up: []string{"B"}, Down: []string{"b"}},
}

func TestUpAndDown(t *testing.T) {
	ctx, d := t.Context(), &database{}
	if err := Check(ctx, d, known); model.CodeOf(err) != model.CodeSchema {
		t.Errorf("an absent schema: %v", err)
	}
	up, err := Up(ctx, d, known)
	if err != nil || !slices.Equal(up, []int{1, 2}) {
		t.Fatalf("up: %v, %v", up, err)
	}
	if err := Check(ctx, d, known); err != nil {
		t.Error(err)
	}
	if up, err = Up(ctx, d, known); err != nil || up != nil {
		t.Errorf("up again: %v, %v", up, err)
	}
	if undone, err := Down(ctx, d, known); err != nil || undone != 2 {
		t.Errorf("down: %d, %v", undone, err)
	}
	if err := Check(ctx, d, known); model.CodeOf(err) != model.CodeSchema {
		t.Errorf("an older schema: %v", err)
	}
	status, err := Status(ctx, d, known)
	want := []model.SchemaVersion{{Version: 1, Name: "a", AppliedAt: 1}, {Version: 2, Name: "b"}}
	if diff := cmp.Diff(want, status); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, want := range []int{1, 0, 0} {
		if undone, err := Down(ctx, d, known); err != nil || undone != want {
			t.Errorf("down: %d, %v, want %d", undone, err, want)
		}
	}
	if diff := cmp.Diff([]string{"A", "B", "b", "a"}, d.ran); diff != "" {
		t.Error(diff)
	}
}

func TestUpByManyAppliesEachOnce(t *testing.T) {
	d := &database{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []int
	for range 8 {
		wg.Go(func() {
			up, err := Up(t.Context(), d, known)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			all = append(all, up...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if !slices.Equal(all, []int{1, 2}) {
		t.Errorf("applied %v", all)
	}
}

func TestUpStopsAtAFailure(t *testing.T) {
	d := &database{fail: "B"}
	up, err := Up(t.Context(), d, known)
	if err == nil || !slices.Equal(up, []int{1}) {
		t.Errorf("up: %v, %v", up, err)
	}
}

func TestAForeignSchemaIsNotTouched(t *testing.T) {
	for name, versions := range map[string][]int{"newer": {1, 2, 3}, "with a gap": {2}, "newer with a gap": {1, 7}} {
		t.Run(name, func(t *testing.T) {
			d := &database{}
			for _, v := range versions {
				d.applied = append(d.applied, model.SchemaVersion{Version: v, Name: "x", AppliedAt: 5})
			}
			_, up := Up(t.Context(), d, known)
			_, down := Down(t.Context(), d, known)
			check := Check(t.Context(), d, known)
			for _, err := range []error{up, down, check} {
				if model.CodeOf(err) != model.CodeSchema {
					t.Errorf("got %v, want %s", err, model.CodeSchema)
				}
			}
			if len(d.ran) > 0 {
				t.Errorf("ran %v", d.ran)
			}
			status, err := Status(t.Context(), d, known)
			if err != nil || status[len(status)-1].Version != max(2, versions[len(versions)-1]) {
				t.Errorf("status %v, %v", status, err)
			}
			for _, v := range status {
				if v.Unknown != (v.AppliedAt != 0 && !slices.ContainsFunc(known, func(m Migration) bool { return m.Version == v.Version })) {
					t.Errorf("version %d: unknown is %v", v.Version, v.Unknown)
				}
			}
		})
	}
}
