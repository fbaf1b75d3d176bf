package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestRatiosAreWithinARound(t *testing.T) {
	postgres, sqlite := &engine{name: "postgres", title: "PostgreSQL"}, &engine{name: "sqlite", title: "SQLite"}
	took := func(seconds ...float64) (rounds []round) {
		for _, s := range seconds {
			rounds = append(rounds, round{took: time.Duration(s * float64(time.Second)), cpu: time.Second})
		}
		return rounds
	}
	b := &bench{settings: settings{messages: 1000, rounds: 3}, engines: []*engine{postgres, sqlite}, contenders: []*contender{
		{kind: kinds[0], engine: postgres, rounds: took(1, 4, 2)},
		{kind: kinds[1], engine: postgres, rounds: took(0.5, 1, 2)},
		{kind: kinds[1], engine: sqlite, rounds: took(1, 1, 1)},
	}}
	f := b.figures()
	// Within the rounds it is 2, 4 and 1; of the medians it would be (1000/1) : (1000/2).
	if of := f.Contenders[1].OfRiver; of == nil || *of != 2 {
		t.Errorf("of River: %v, want 2", of)
	}
	if got := f.Contenders[1].PerSecond; got != 1000 {
		t.Errorf("%v a second, want 1000", got)
	}
	if got := f.Contenders[1].CPU; got != 1000 {
		t.Errorf("%v µs of this process, want 1000", got)
	}
	if f.Contenders[2].OfRiver != nil {
		t.Error("another database is compared to River on PostgreSQL")
	}
	if f.Contenders[1].DatabaseCPU != nil {
		t.Error("the processor time of a database that nobody could watch is shown")
	}
	var table bytes.Buffer
	b.print(&table)
	for _, c := range f.Contenders {
		if !strings.Contains(table.String(), c.Title) {
			t.Errorf("the table has no %q", c.Title)
		}
	}
}

func TestPayloadsAreJSONOfTheSizeThatIsPromised(t *testing.T) {
	for _, number := range []int{0, 99_999_999} {
		if b := payload(number); len(b) != bodySize || !json.Valid(b) {
			t.Errorf("payload %d has %d B: %s", number, len(b), b)
		}
	}
}

func TestRefusesWhatThereIsNot(t *testing.T) {
	for _, args := range []string{"-only rivers", "-store oracle", "-n 0", "-rounds 0", "extra"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s: accepted", args)
		}
	}
}

// The whole, small, on the database that needs no server.
func TestMeasuresOnSQLite(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), strings.Fields("-n 1200 -rounds 1 -store sqlite"), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"Posthouse, parallel on SQLite", "Posthouse, keyed on SQLite", "Posthouse, serial on SQLite"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
