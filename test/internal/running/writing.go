package running

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Writing is how the numbered messages of a load look, and how they are read
// back.
type Writing struct {
	ContentType string
	Body        func(n int) []byte
	// Number returns n, also with an error: what is wrong with the body otherwise.
	Number func(body []byte) (n int, err error)
}

// Binary writes messages of which most are no valid UTF-8 and hold NULs.
var Binary = Writing{ContentType: "application/octet-stream", Body: bodyOf, Number: numberOf}

// bodyOf makes the body of message n: its number in a line, then up to 2000
// random bytes, always the same.
func bodyOf(n int) []byte {
	body := append(strconv.AppendInt(nil, int64(n), 10), '\n')
	random := rand.New(rand.NewPCG(uint64(n), 1))
	for range random.IntN(250) {
		word := random.Uint64()
		for shift := 0; shift < 64; shift += 8 {
			body = append(body, byte(word>>shift))
		}
	}
	return body
}

// numberOf reads the number back, and says whether the body is, to the byte,
// the one that was pushed.
func numberOf(body []byte) (int, error) {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	n, err := strconv.Atoi(string(line))
	if err != nil {
		return 0, fmt.Errorf("a body of %d bytes does not begin with its number", len(body))
	}
	return n, same(n, body, bodyOf(n))
}

func same(n int, got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the body of message %d is not the one that was pushed (%d bytes, want %d)", n, len(got), len(want))
	}
	return nil
}

// Keyed writes messages as JSON, each with the key that keyOf tells: its members
// are n and key.
func Keyed(keyOf func(n int) string) Writing {
	type letter struct {
		N   int    `json:"n"`
		Key string `json:"key"`
	}
	write := func(n int) []byte {
		return fmt.Appendf(nil, `{"n":%d,"key":%q}`, n, keyOf(n))
	}
	return Writing{ContentType: "application/json", Body: write, Number: func(body []byte) (int, error) {
		var l letter
		if err := json.Unmarshal(body, &l); err != nil {
			return 0, fmt.Errorf("a body of %d bytes: %w", len(body), err)
		}
		return l.N, same(l.N, body, write(l.N))
	}}
}
