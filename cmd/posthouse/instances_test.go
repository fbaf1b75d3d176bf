package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

func TestInstances(t *testing.T) {
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "ph.db"))
	args := []string{"instances", "--store", "sqlite:ph.db"}
	if out, _, code := posthouse(t, dir, args...); code != 0 || out != "No instance is alive.\n" {
		t.Errorf("%d %q", code, out)
	}
	store, err := sqlite.Open(sqlite.Config{Path: filepath.Join(dir, "ph.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	sources, err := store.Register(t.Context(), []model.SourceSpec{
		{Name: "keyed", Wants: model.Ordering{Order: model.Keyed, Partitions: 8, Key: "body.id"}},
		{Name: "serial", Wants: model.Ordering{Order: model.Serial, Partitions: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const lease = model.Micros(time.Hour / time.Microsecond)
	for id, name := range map[model.InstanceID]string{0xabc: "host-1", 0xdef: "host-2\x1b[31m", 0x123: "gone"} {
		if err := store.JoinInstance(t.Context(), id, name, lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.LeaveInstance(t.Context(), 0x123); err != nil {
		t.Fatal(err)
	}
	partitions := []model.Partition{{Queue: sources[1].ID}}
	for _, n := range []int{0, 1, 2, 5, 7} {
		partitions = append(partitions, model.Partition{Queue: sources[0].ID, Number: n})
	}
	if _, err := store.TakeLeases(t.Context(), 0xabc, partitions); err != nil {
		t.Fatal(err)
	}
	t.Run("IN-07 who is alive, which partitions each holds, and since when", func(t *testing.T) {
		out, e, code := posthouse(t, dir, args...)
		if code != 0 {
			t.Fatal(code, e)
		}
		const at = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`
		for _, line := range []string{
			`^NAME +ID +STATE +STARTED +SOURCE +PARTITIONS +SINCE$`,
			`^host-1 +0000000000000abc +alive +` + at + ` +keyed +0-2,5,7 +` + at + `$`,
			`^ +serial +0 +` + at + `$`,
			`^host-2 \[31m +0000000000000def +alive +` + at + ` *$`,
		} {
			if !regexp.MustCompile(`(?m)` + line).MatchString(out) {
				t.Errorf("no line %s in\n%s", line, out)
			}
		}
		if strings.Contains(out, "gone") || strings.Count(out, "\n") != 4 {
			t.Errorf("printed is\n%s", out)
		}
	})
	t.Run("the dead only where they are asked for", func(t *testing.T) {
		if out, _, _ := posthouse(t, dir, append(args, "--dead")...); !regexp.MustCompile(`(?m)^gone +0000000000000123 +dead `).MatchString(out) {
			t.Errorf("printed is\n%s", out)
		}
	})
	t.Run("as JSON it is what the API answers", func(t *testing.T) {
		out, _, _ := posthouse(t, dir, append(args, "--json")...)
		var list httpapi.InstanceList
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Instances) != 2 {
			t.Fatalf("%v in %s", err, out)
		}
		for _, i := range list.Instances {
			if i.ID == "0000000000000abc" && (len(i.Partitions) != 6 || i.Partitions[3].Partition != 5 || i.Partitions[5].Source != "serial") {
				t.Errorf("%+v", i)
			}
		}
	})
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-1": {0, 1}, "0,2": {0, 2}, "0-2,5,7-8": {0, 1, 2, 5, 7, 8}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v: %s, want %s", numbers, got, want)
		}
	}
}
