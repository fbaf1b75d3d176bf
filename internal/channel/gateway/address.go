package gateway

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/channel"
)

// maxAddress bounds an address, in bytes.
const maxAddress = 256

// Addresses takes what a provider may call an address: a phone number, a user's
// or a room's id. Which of them exist only the provider knows.
type Addresses struct{}

var _ channel.Addresses = Addresses{}

// Check returns the address without the spaces around it. Shown are its last two
// characters, and its first three where it is long.
func (Addresses) Check(address string) (kept, masked string, err error) {
	kept = strings.TrimSpace(address)
	switch {
	case kept == "":
		return "", "", errors.New("is empty")
	case len(kept) > maxAddress:
		return "", "", fmt.Errorf("is longer than %d bytes", maxAddress)
	case !utf8.ValidString(kept):
		return "", "", errors.New("is not UTF-8")
	case strings.ContainsFunc(kept, unicode.IsControl):
		return "", "", errors.New("holds a control character")
	}
	letters := []rune(kept)
	switch n := len(letters); {
	case n >= 10:
		return kept, string(letters[:3]) + "•••" + string(letters[n-2:]), nil
	case n >= 6:
		return kept, "•••" + string(letters[n-2:]), nil
	}
	return kept, "•••", nil
}
