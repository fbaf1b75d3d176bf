package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/scrub"
	"github.com/posthouse/posthouse/internal/model"
)

// classify says what an answer means. broken: not all of it could be read.
func (s *Sender) classify(a Answer, m channel.Message, broken bool) channel.Result {
	sent := a.Status >= 200 && a.Status <= 299
	r := channel.Result{HTTPStatus: a.Status}
	// Where rules tell success from failure by the body, a status alone is no
	// success.
	if sent && s.readsBody && (broken || len(a.Body) > 0 && !json.Valid(a.Body)) {
		r.Class, r.Code, r.Text = model.ClassUncertain, "unreadable", fmt.Sprintf("the provider answered %d with a body that cannot be read", a.Status)
		return r
	}
	r.Class = s.classOf(a)
	hide := hider{scrub.New(slices.Concat([]string{m.Address, m.Subject, m.Text}, m.Hidden, s.secrets)...), digits(m.Address)}
	switch r.Class {
	case model.ClassSuccess:
		if s.cfg.ProviderID != nil {
			if id, err := s.cfg.ProviderID(a); err == nil && len(id) <= model.MaxProviderID {
				r.ProviderID = hide.Code(id)
			}
		}
		return r
	case model.ClassRateLimited, model.ClassTransient:
		r.RetryAfter = retryAfter(a, s.now())
	case model.ClassPermanent, model.ClassAuth, model.ClassUncertain:
	}
	r.Code = strconv.Itoa(a.Status)
	r.Text = fmt.Sprintf("the provider answered %d", a.Status)
	if code := hide.Code(codeOf(a.Body)); code != "" {
		r.Code = code
		r.Text += " (" + code + ")"
	}
	return r
}

// hider lets a code pass that repeats nothing of the message.
type hider struct {
	scrub.Scrubber
	number string // the digits of the address
}

// minDigits is how many digits of a phone number in a row give it away.
const minDigits = 6

// Code returns the code, and "" where it holds a part of the address's number,
// however it is written.
func (h hider) Code(code string) string {
	if len(h.number) >= minDigits {
		given := digits(code)
		for i := 0; i+minDigits <= len(given); i++ {
			if strings.Contains(h.number, given[i:i+minDigits]) {
				return ""
			}
		}
	}
	return h.Scrubber.Code(code)
}

func digits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
}

func (s *Sender) classOf(a Answer) model.Class {
	for _, rule := range s.cfg.Classify {
		if holds, err := rule.When(a); err == nil && holds {
			return rule.Class
		}
	}
	return defaultClass(a.Status)
}

func defaultClass(status int) model.Class {
	switch {
	case status >= 200 && status <= 299:
		return model.ClassSuccess
	case status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
		return model.ClassAuth
	case status == http.StatusTooManyRequests:
		return model.ClassRateLimited
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly || status >= 500:
		return model.ClassTransient
	}
	return model.ClassPermanent
}

// codePaths is where providers put their code, in the order in which it is
// looked for.
var codePaths = [][]string{
	{"code"}, {"errcode"}, {"error_code"}, {"error", "code"}, {"Code"}, {"Response", "Error", "Code"}, {"StatusCode"}, {"error"}, {"reason"}, {"status"},
}

// codeOf finds the provider's own code in a JSON body; "" where there is none.
func codeOf(body []byte) string {
	var tree any
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return ""
	}
	for _, path := range codePaths {
		at := tree
		for _, name := range path {
			object, ok := at.(map[string]any)
			if !ok {
				at = nil
				break
			}
			at = object[name]
		}
		switch code := at.(type) {
		case string:
			// A code is a word; what has spaces is a text, which may repeat anything.
			if code != "" && len(code) <= model.MaxErrorCode && !strings.ContainsAny(code, " \t\r\n@/") {
				return code
			}
		case json.Number:
			if len(code) <= model.MaxErrorCode {
				return code.String()
			}
		}
	}
	return ""
}

// retryAfter is what the provider asks for: the header, as seconds (rounded up)
// or a date (relative to the answer's own Date where it has one), or what some
// put in the body, in seconds. It is 0 where nothing sensible is said.
func retryAfter(a Answer, now time.Time) time.Duration {
	if value := strings.TrimSpace(a.Header.Get("Retry-After")); value != "" {
		if wait, ok := seconds(value); ok {
			return wait
		}
		at, err := http.ParseTime(value)
		if err != nil {
			return 0
		}
		if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
			now = date
		}
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	var said struct {
		RetryAfter json.Number `json:"retry_after"`
		Parameters struct {
			RetryAfter json.Number `json:"retry_after"`
		} `json:"parameters"`
	}
	if json.Unmarshal(a.Body, &said) != nil {
		return 0
	}
	for _, n := range []json.Number{said.RetryAfter, said.Parameters.RetryAfter} {
		if wait, ok := seconds(n.String()); ok {
			return wait
		}
	}
	return 0
}

// seconds reads a number of seconds, "120" or "1.5".
func seconds(text string) (time.Duration, bool) {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // what is too large is infinite
		return 0, false
	}
	if n >= maxRetryAfter.Seconds() {
		return maxRetryAfter, true
	}
	wait := time.Duration(n * float64(time.Second))
	if whole := wait.Truncate(time.Second); whole != wait {
		wait = whole + time.Second
	}
	return wait, true
}
