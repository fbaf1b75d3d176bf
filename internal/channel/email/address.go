package email

import (
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/posthouse/posthouse/internal/channel"
)

// Limits of RFC 5321 §4.5.3.1, in octets.
const (
	maxLocal   = 64
	maxAddress = 254
	maxDomain  = 253
)

// Addresses checks e-mail addresses as they are given for recipients: one
// address, without a name.
type Addresses struct{}

var _ channel.Addresses = Addresses{}

// Check implements channel.Addresses. White space around the address and angle
// brackets are taken off, and the domain becomes the form that travels (lower
// case, xn--…); the local part stays as it is.
//
// Refused, beside what is no address: names and comments, address literals, hosts
// without a dot, and domains that mix look-alike alphabets.
func (Addresses) Check(address string) (kept, masked string, err error) {
	a, err := parseAddress(address)
	if err != nil {
		return "", "", err
	}
	return a.String(), a.masked(), nil
}

// Address is one mailbox, ready for the wire.
type Address struct {
	Local  string // quoted where it must be
	Domain string // lower case, ASCII
}

// String returns the address as RCPT TO wants it, without angle brackets.
func (a Address) String() string {
	if a == (Address{}) {
		return ""
	}
	return a.Local + "@" + a.Domain
}

// utf8 says whether only a server with SMTPUTF8 can take it.
func (a Address) utf8() bool { return !ascii(a.Local) }

// masked shows the first letter and the domain; of a local part of one letter
// only the domain.
func (a Address) masked() string {
	local := strings.Trim(a.Local, `"`)
	first := ""
	if r, size := utf8.DecodeRuneInString(local); size < len(local) && r != '\\' {
		first = string(r)
	}
	return first + "•••@" + a.Domain
}

// parseAddress reads one address. Its errors do not repeat it.
func parseAddress(s string) (Address, error) {
	if !utf8.ValidString(s) {
		return Address{}, errors.New("the e-mail address is not UTF-8")
	}
	s = strings.Trim(s, " \t")
	if strings.ContainsFunc(s, unicode.IsControl) {
		return Address{}, errors.New("the e-mail address has a line end or another control character in it")
	}
	s = strings.TrimFunc(s, unicode.IsSpace)
	if inner, ok := strings.CutPrefix(s, "<"); ok && strings.HasSuffix(inner, ">") {
		s = strings.TrimFunc(strings.TrimSuffix(inner, ">"), unicode.IsSpace)
	}
	if s == "" {
		return Address{}, errors.New("the e-mail address is empty")
	}
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return Address{}, errors.New("the e-mail address has no @")
	}
	local, domain := s[:at], s[at+1:]
	if err := checkLocal(local); err != nil {
		return Address{}, err
	}
	domain, err := checkDomain(domain)
	if err != nil {
		return Address{}, err
	}
	if len(local)+1+len(domain) > maxAddress {
		return Address{}, fmt.Errorf("the e-mail address is longer than %d bytes", maxAddress)
	}
	return Address{local, domain}, nil
}

func checkLocal(local string) error {
	switch {
	case local == "" || local == `""`:
		return errors.New("the e-mail address has nothing before its @")
	case len(local) > maxLocal:
		return fmt.Errorf("the e-mail address has more than %d bytes before its @", maxLocal)
	case strings.ContainsFunc(local, unseen):
		return errors.New("the e-mail address has an invisible character before its @")
	case local[0] == '"':
		return checkQuoted(local)
	}
	for atom := range strings.SplitSeq(local, ".") {
		if atom == "" {
			return errors.New("before its @ the e-mail address begins or ends with a dot, or has two in a row")
		}
		for _, r := range atom {
			if !atext(r) {
				return errors.New("before its @ the e-mail address has a character that must stand in quotes; give one address only, without a name or a comment")
			}
		}
	}
	return nil
}

func checkQuoted(local string) error {
	escaped := false
	for i, r := range local {
		switch {
		case i == 0:
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			if i == len(local)-1 {
				return nil
			}
			return errors.New("the quoted part of the e-mail address ends before the @")
		}
	}
	return errors.New("the quoted part of the e-mail address has no end")
}

// atext is what may stand in a local part without quotes (RFC 5322, RFC 6532).
func atext(r rune) bool {
	if r >= utf8.RuneSelf {
		return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r) || unicode.IsSymbol(r) ||
			unicode.IsPunct(r) && r != '＠' && r != '\ufe6b'
	}
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
}

// unseen are characters that are not seen, or turn what is seen around. The two
// joiners are none: some languages need them.
func unseen(r rune) bool {
	switch {
	case r == '\u200c' || r == '\u200d':
		return false
	case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Variation_Selector):
		return true
	}
	return r == '\u034f' || r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\uffa0'
}

var domains = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.CheckJoiners(true),
	idna.StrictDomainName(true), idna.ValidateLabels(true), idna.CheckHyphens(false), idna.VerifyDNSLength(true))

// checkDomain returns the domain in the form that travels.
func checkDomain(domain string) (string, error) {
	switch {
	case domain == "":
		return "", errors.New("the e-mail address has nothing after its @")
	case strings.HasPrefix(domain, "["):
		return "", errors.New("the e-mail address names a host by its number; give a domain")
	case strings.ContainsFunc(domain, unicode.IsSpace):
		return "", errors.New("the domain of the e-mail address has white space in it; give one address only")
	case strings.ContainsFunc(domain, unseen):
		return "", errors.New("the domain of the e-mail address has an invisible character in it")
	}
	travels, err := domains.ToASCII(strings.TrimSuffix(domain, "."))
	if err != nil {
		return "", errors.New("the domain of the e-mail address cannot exist; look for a misspelling")
	}
	shown, err := domains.ToUnicode(travels)
	if err != nil {
		return "", errors.New("the domain of the e-mail address cannot exist; look for a misspelling")
	}
	if again, err := domains.ToASCII(shown); err != nil || again != travels {
		return "", errors.New("the domain of the e-mail address has a broken xn-- part")
	}
	if len(travels) > maxDomain {
		return "", fmt.Errorf("the domain of the e-mail address is longer than %d bytes", maxDomain)
	}
	if _, err := netip.ParseAddr(travels); err == nil {
		return "", errors.New("the e-mail address names a host by its number; give a domain")
	}
	labels := strings.Split(travels, ".")
	for _, label := range labels {
		if label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return "", errors.New("the domain of the e-mail address has an empty part, or one that begins or ends with a hyphen")
		}
	}
	last := labels[len(labels)-1]
	if len(labels) < 2 || len(last) < 2 || strings.Trim(last, "0123456789") == "" {
		return "", errors.New("the domain of the e-mail address has no top-level domain, such as .com, that can exist")
	}
	for label := range strings.SplitSeq(shown, ".") {
		if mixed(label) {
			return "", errors.New("the domain of the e-mail address mixes alphabets that look alike")
		}
	}
	return travels, nil
}

// mixed says whether a label is written in two alphabets whose letters look
// alike.
func mixed(label string) bool {
	found := 0
	for _, alphabet := range []*unicode.RangeTable{unicode.Latin, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee} {
		if strings.ContainsFunc(label, func(r rune) bool { return unicode.Is(alphabet, r) }) {
			found++
		}
	}
	return found > 1
}

// Mailbox is an address with the name of whose it is.
type Mailbox struct {
	Name    string // "" where there is none
	Address Address
}

// ParseMailbox reads "Name <user@example.com>" or a bare address. Its errors say
// what is wrong, and do not repeat it.
func ParseMailbox(s string) (Mailbox, error) {
	if _, err := checkHeaderText(s); err != nil {
		return Mailbox{}, err
	}
	bare, bareErr := parseAddress(s)
	if bareErr == nil {
		return Mailbox{Address: bare}, nil
	}
	list, err := ParseMailboxes(s)
	switch {
	case err != nil && !strings.Contains(s, "<"):
		return Mailbox{}, bareErr
	case err != nil:
		return Mailbox{}, err
	case len(list) != 1:
		return Mailbox{}, errors.New("one e-mail address is wanted, not several")
	}
	return list[0], nil
}

// ParseMailboxes reads a list of mailboxes and groups of them, separated by
// commas (RFC 5322). Each address is in it once: domains are the same whatever
// their case, local parts are not. A group may be empty, and so may be the list
// that comes of it.
func ParseMailboxes(s string) ([]Mailbox, error) {
	if _, err := checkHeaderText(s); err != nil {
		return nil, err
	}
	if name, rest, ok := strings.Cut(s, ":"); ok && strings.TrimSpace(rest) == ";" && !strings.ContainsAny(name, `@<",`) && strings.TrimSpace(name) != "" {
		return nil, nil
	}
	parsed, err := mail.ParseAddressList(s)
	if err != nil {
		return nil, errors.New("this is no list of e-mail addresses: separate them by commas, and put a name with a comma in quotes")
	}
	var list []Mailbox
	seen := map[Address]bool{}
	for _, one := range parsed {
		// The parser takes the quotes off.
		local, domain := cutLast(one.Address)
		if checkLocal(local) != nil {
			local = quote(local)
		}
		address, err := parseAddress(local + "@" + domain)
		if err != nil {
			return nil, err
		}
		name, err := checkHeaderText(one.Name)
		if err != nil {
			return nil, err
		}
		if !seen[address] {
			seen[address] = true
			list = append(list, Mailbox{name, address})
		}
	}
	return list, nil
}

// CheckFrom says what is wrong with a sender as the configuration has it, such as
// "Approvals <no-reply@example.com>"; nil where it can be used.
func CheckFrom(from string) error {
	_, err := ParseMailbox(from)
	if err != nil {
		return fmt.Errorf("%w; write it like \"Approvals <no-reply@example.com>\"", err)
	}
	return nil
}

// cutLast cuts at the last @, or at the end where there is none.
func cutLast(s string) (before, after string) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// quote writes a text as a quoted string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
