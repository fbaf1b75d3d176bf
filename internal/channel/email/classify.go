package email

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// stage is how far a conversation had come.
type stage string

const (
	stageConnect  stage = "connect"
	stageTLS      stage = "tls"
	stageGreeting stage = "greeting"
	stageHello    stage = "EHLO"
	stageStartTLS stage = "STARTTLS"
	stageAuth     stage = "AUTH"
	stageReset    stage = "RSET"
	stageMail     stage = "MAIL"
	stageRcpt     stage = "RCPT"
	stageData     stage = "DATA"
	stageBody     stage = "the message" // its lines, before the final dot
	stageEnd      stage = "end of DATA" // the final dot was written
)

// enhanced is the status code of RFC 3463: class.subject.detail. The zero value
// is none.
type enhanced struct{ class, subject, detail int }

var enhancedCode = regexp.MustCompile(`^([245])\.(\d{1,3})\.(\d{1,3})(?:\D|$)`)

func readEnhanced(text string) enhanced {
	found := enhancedCode.FindStringSubmatch(text)
	if found == nil {
		return enhanced{}
	}
	var numbers [3]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(found[i+1]) // it is of digits
	}
	return enhanced{numbers[0], numbers[1], numbers[2]}
}

func (e enhanced) is(subject, detail int) bool {
	return e.subject == subject && e.detail == detail && e.class != 0
}

// codeText is a reply's code as it is kept: "550 5.1.1".
func codeText(code int, e enhanced) string {
	if e == (enhanced{}) {
		return strconv.Itoa(code)
	}
	return fmt.Sprintf("%d %d.%d.%d", code, e.class, e.subject, e.detail)
}

const (
	// greylisted is how long servers that turn away whom they do not know yet want
	// him to wait; most say five minutes.
	greylisted = 5 * time.Minute
	// exhausted is how long to wait after a limit per day: the longest that there is.
	exhausted = time.Hour
)

// classify says what a reply of 400 or more means: by its code alone, never by
// its text. The first digit decides whether another try can help, the enhanced
// code makes it finer. wait is what such servers ask for, 0 where nothing.
func classify(at stage, code int, e enhanced) (class model.Class, wait time.Duration) {
	switch {
	case code < 400 || code > 599:
		// Neither yes nor no.
		if at == stageEnd {
			return model.ClassUncertain, 0
		}
		return model.ClassTransient, 0
	case code < 500:
		return classify4(at, code, e)
	}
	return classify5(at, code, e)
}

func classify4(at stage, code int, e enhanced) (model.Class, time.Duration) {
	switch {
	case at == stageAuth, at == stageStartTLS:
		return model.ClassTransient, 0 // whatever it is, the password is not refused
	case e.is(4, 5) && e.class == 5:
		return model.ClassRateLimited, exhausted
	case e.is(7, 28), e.subject == 7 && e.detail >= 500 && e.detail <= 699:
		return model.ClassRateLimited, 0 // a flood; 4.7.5xx and 4.7.6xx are Microsoft's throttling
	case e.is(2, 1) && e.class == 4:
		return model.ClassRateLimited, 0 // too quickly, for this recipient or for all
	case code == 421 && e.subject == 7 && at != stageRcpt:
		return model.ClassRateLimited, 0 // too many connections, or too suspicious ones; at RCPT it is about the recipient
	case at == stageRcpt && (code == 450 || code == 451) && (e == enhanced{} && code == 450 || e.is(7, 1) || e.is(7, 0) || e.is(2, 0)):
		return model.ClassTransient, greylisted
	}
	return model.ClassTransient, 0
}

func classify5(at stage, code int, e enhanced) (model.Class, time.Duration) {
	switch code {
	case 530, 534, 535, 538, 523, 524, 525:
		return model.ClassAuth, 0
	}
	switch at {
	case stageAuth:
		if code < 510 && e.subject != 7 {
			// It does not know the mechanism, or did not understand: no wrong password.
			return model.ClassTransient, 0
		}
		return model.ClassAuth, 0
	case stageHello:
		if code < 510 {
			return model.ClassTransient, 0 // who knows neither EHLO nor HELO is no mail server now
		}
	case stageStartTLS, stageReset:
		return model.ClassTransient, 0
	case stageMail, stageData, stageEnd:
		if e.subject == 7 && accountRefused[e.detail] || at == stageMail && code == 553 && e.is(7, 1) {
			return model.ClassAuth, 0 // not logged in, or not allowed to write as this sender
		}
	}
	switch {
	case e.is(4, 5) && e.class == 5, e.is(7, 28) && e.class == 5:
		return model.ClassRateLimited, exhausted // a limit per day, a flood
	case e.is(2, 2) && e.class == 5:
		return model.ClassTransient, 0 // a full mailbox may be emptied
	case at == stageRcpt && code == 552 && e == enhanced{}:
		return model.ClassTransient, 0 // old servers: too many recipients, or a full mailbox (RFC 5321 §4.5.3.1.10)
	}
	return model.ClassPermanent, 0
}

// accountRefused are the details of 5.7.x that are about who sends.
var accountRefused = map[int]bool{
	8: true, 9: true, 10: true, 11: true, 12: true, 13: true, 14: true, // RFC 4954, RFC 5248
	57: true, 60: true, 139: true, // Microsoft: not logged in, may not send as this sender, basic authentication is off
}
