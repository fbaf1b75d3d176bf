package columns

import (
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

func TestBackoffComesBack(t *testing.T) {
	for text, waits := range map[string][]time.Duration{
		"":                        nil,
		"0":                       {0},
		"30000000,120000000,1000": {30 * time.Second, 2 * time.Minute, time.Millisecond},
	} {
		if got := FormatBackoff(waits); got != text {
			t.Errorf("%v is written as %q, want %q", waits, got, text)
		}
		if got, err := ParseBackoff(text); err != nil || !slices.Equal(got, waits) {
			t.Errorf("%q is read as %v, want %v: %v", text, got, waits, err)
		}
	}
	for _, text := range []string{"x", "1,", "1.5"} {
		if got, err := ParseBackoff(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTextIsClean(t *testing.T) {
	for text, want := range map[string]string{"": "", "plain": "plain", "a\x00b": "a\uFFFDb", "a\xff\xfeb": "a\uFFFDb", "ü😀": "ü😀"} {
		if got := Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestOrderTakesTheFirstOfEachClaim(t *testing.T) {
	settlements := []model.Settlement{
		{Seq: 3, Token: 1},
		{Seq: 1, Token: 1},
		{Seq: 3, Token: 1, Kind: model.SettleFailed}, // late
		{Seq: 3, Token: 2},                           // of another claim
		{Seq: 2, Token: 9},
		{Seq: 1, Token: 1}, // late
	}
	if got, want := Order(settlements), []int{1, 4, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
