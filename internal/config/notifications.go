package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Channel is one way to reach people, through one account.
type Channel struct {
	// Type is what carries out its deliveries: in_app is the user's messages here, email is an SMTP server, http is a
	// provider with an HTTP API, for SMS or chat. A channel that is called in_app needs no type.
	Type ChannelType `yaml:"type" default:"" oneof:"in_app email http"`

	// SMTP is the server that mail is handed to. Needed with type: email, and for it alone.
	SMTP *SMTP `yaml:"smtp"`

	// From is the sender of all mail, as in Approvals <no-reply@example.com>. Needed with type: email, and for it alone.
	From string `yaml:"from" default:"" check:"mailbox" example:"\"Approvals <no-reply@example.com>\""`

	// Request is the HTTP request that hands one delivery to the provider. Needed with type: http, and for it alone.
	Request *Request `yaml:"request"`

	// Classify says how an answer of the provider is classed; the first rule that holds decides. Where none does, 2xx is
	// success, 429 rate_limited, 401 and 407 auth, 408, 425 and 5xx transient, any other permanent. For type: http alone.
	Classify []Classify `yaml:"classify" items:"0 64"`

	// ProviderID is an expression over what classify sees that finds the provider's own id of the message in its
	// answer. For type: http alone.
	ProviderID string `yaml:"provider_id" default:"" check:"answervalue" example:"body.sid"`

	// Address is which of a recipient's addresses the channel uses. Empty is email for type: email and phone for type: http.
	Address string `yaml:"address" default:"" check:"kind" example:"phone"`

	// Template is which of a template's parts the channel sends. Empty is in_app, email or, for type: http, text.
	Template string `yaml:"template" default:"" oneof:"in_app email text" example:"text"`

	// OnUncertain says what follows when nobody knows whether the provider has accepted a delivery: resend tries again,
	// and may reach somebody twice; hold sends nothing, and waits for an operator. Empty is resend for type: email and hold
	// for type: http.
	OnUncertain OnUncertain `yaml:"on_uncertain" default:"" oneof:"resend hold" example:"hold"`

	// Rate is how many deliveries are begun at most, by all processes together: 50/s, 600/m or 1000/h. Those that run
	// divide it among themselves. 0/s is no limit.
	Rate Rate `yaml:"rate" default:"0/s" example:"50/s"`

	// Concurrency is how many deliveries of the channel a process carries out at once.
	Concurrency int `yaml:"concurrency" default:"8" min:"1" max:"1000"`

	// Breaker lets an account that fails alone for a while.
	Breaker Breaker `yaml:"breaker"`

	// Retry overrides, for this channel, those keys of the top's retry that it names.
	Retry *Retry `yaml:"retry"`
}

// ChannelType is what carries out a channel's deliveries.
type ChannelType string

// The values of [ChannelType].
const (
	ChannelInApp   ChannelType = "in_app"
	ChannelEmail   ChannelType = "email"
	ChannelHTTP    ChannelType = "http"
	ChannelMailbox ChannelType = "mailbox" // of [Dev] alone: mail is kept for a look at it, and not sent
)

// OnUncertain says what follows when nobody knows whether a provider has accepted a delivery.
type OnUncertain string

// The values of [OnUncertain].
const (
	Resend OnUncertain = "resend"
	Hold   OnUncertain = "hold"
)

// SMTP is the server that mail is handed to.
type SMTP struct {
	// Host is the server's name.
	Host string `yaml:"host" check:"host" required:"write host: mail.example.com"`

	// Port is the server's port; 465 where it is left out with tls: implicit.
	Port int `yaml:"port" default:"587" min:"1" max:"65535"`

	// Username is the account's name. Empty logs in nowhere.
	Username string `yaml:"username" default:"" check:"line" example:"\"${MAIL_USERNAME}\""`

	// Password is ${NAME} or file:/path: one that is written out is refused. Needed with username, and for it alone.
	Password Secret `yaml:"password" default:"" check:"outside" example:"\"${MAIL_PASSWORD}\""`

	// TLS is how the line is encrypted: starttls begins in the clear and goes no further without TLS, implicit begins
	// with TLS, none never encrypts, and takes no password but to a loopback address.
	TLS TLSMode `yaml:"tls" default:"starttls" oneof:"starttls implicit none"`

	// ConnectTimeout is how long connecting may take, TLS included.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"3s" min:"100ms" max:"5m"`

	// ReadTimeout is how long each answer of the server may take.
	ReadTimeout time.Duration `yaml:"read_timeout" default:"5s" min:"100ms" max:"10m"`
}

// TLSMode is how a line is encrypted.
type TLSMode string

// The values of [TLSMode].
const (
	TLSStart    TLSMode = "starttls"
	TLSImplicit TLSMode = "implicit"
	TLSNone     TLSMode = "none"
)

// Request is the HTTP request that hands one delivery to a provider.
type Request struct {
	// Method is the HTTP method.
	Method string `yaml:"method" default:"POST" oneof:"POST PUT PATCH GET"`

	// URL is where it goes, http or https; it may be a text/template as body is, with a fixed host. A token in it comes
	// from the environment, as ${NAME}; file:/path reads the whole URL from a file.
	URL Secret `yaml:"url" check:"requesturl" required:"write url: https://sms.example.com/send" example:"https://sms.example.com/send"`

	// Headers are sent with it, each a text/template that sees what body sees. Credentials come from the environment, as
	// ${NAME}, or from file:/path: written out they are refused.
	Headers map[string]Secret `yaml:"headers" names:"header" default:"" check:"requestheader" items:"0 32" example:"{Authorization: \"Bearer ${SMS_TOKEN}\", Idempotency-Key: \"{{.delivery.id}}\"}"`

	// Body is a text/template over .address, .subject, .body, .biz_type, .locale, .delivery.id, .request.id, .recipient.id
	// and .now_ms, the time in milliseconds. In JSON the function json writes a value, in its quotes: {"to": {{json .address}}};
	// in a form each ends with urlquery, in XML with html: one that is not escaped is refused. Which it is says the
	// header Content-Type, a fixed text; without one, a body that begins with { or [ is JSON. hmac_sha256_base64 KEY TEXT
	// signs, as in {{hmac_sha256_base64 "${SMS_KEY}" .body | json}}. A blank body is none.
	Body Secret `yaml:"body" default:"" check:"requestbody" example:"'{\"to\": {{json .address}}, \"text\": {{json .body}}}'"`

	// ConnectTimeout is how long connecting may take, TLS included.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"3s" min:"100ms" max:"5m"`

	// ReadTimeout is how long writing the request and reading the answer may take, counted from the connection.
	ReadTimeout time.Duration `yaml:"read_timeout" default:"5s" min:"100ms" max:"10m"`
}

// Classify is one rule by which a provider's answer is classed.
type Classify struct {
	// When is an expression over status, headers (by their names in lower case), body (the answer's JSON) and text (the
	// answer as it came). A rule that cannot be evaluated on an answer does not hold.
	When string `yaml:"when" check:"answer" required:"write when: status == 429" example:"status == 429"`

	// Class is what follows: transient and rate_limited are tried again, permanent is not, auth pauses the channel,
	// uncertain is as on_uncertain says.
	Class string `yaml:"class" oneof:"success transient rate_limited permanent auth uncertain" required:"write class: permanent, or another one"`
}

// Breaker lets an account that fails alone for a while.
type Breaker struct {
	// Failures is how many transient failures in a row open it: deliveries wait, and no attempt is burned.
	Failures int `yaml:"failures" default:"5" min:"1" max:"1000"`

	// Cooldown is how long it stays open before one delivery is tried. Each one that fails then doubles the wait, to a
	// minute at most, or to the cooldown where that is longer.
	Cooldown time.Duration `yaml:"cooldown" default:"1s" min:"100ms" max:"24h"`
}

// Policy chooses channels for some notifications.
type Policy struct {
	// When is an expression over biz_type, priority, tags, locale, template and recipient (recipient.id, and
	// recipient.email and its like, which are true where there is such an address). Empty holds for all.
	When string `yaml:"when" default:"" check:"policy" example:"biz_type == \"device.alarm\" && priority == \"high\""`

	// Send names the channels that are used.
	Send []string `yaml:"send" items:"1 32" required:"write send: [in_app]" example:"[in_app, text]"`

	// Success says which of them must have sent for the notification to have succeeded. Left out, it is all that could be
	// used.
	Success Success `yaml:"success"`
}

// Success says which channels must have sent.
type Success struct {
	// All are channels each of which must have sent.
	All []string `yaml:"all" default:"" items:"0 32" example:"[in_app]"`

	// Any are channels one of which must have sent.
	Any []string `yaml:"any" default:"" items:"0 32" example:"[text]"`
}

// Retry is what follows a delivery's attempt that failed and may be repeated.
type Retry struct {
	// Base is doubled with each attempt that was made, eight times at most: 1s waits 2s, 4s, 8s and so on.
	Base time.Duration `yaml:"base" default:"1s" min:"10ms" max:"1h"`

	// Cap is the longest wait.
	Cap time.Duration `yaml:"cap" default:"300s" min:"10ms" max:"24h"`

	// Jitter makes each wait longer by a random part of it.
	Jitter time.Duration `yaml:"jitter" default:"5s" min:"0s" max:"1h"`

	// MaxAttempts is how many attempts there are, the first included.
	MaxAttempts int `yaml:"max_attempts" default:"6" min:"1" max:"100"`
}

// doublings bounds how often Base is doubled.
const doublings = 8

// Backoff returns the waits after the first attempt, the second, and so on, without jitter. The last one holds for all
// that follow.
func (r Retry) Backoff() []time.Duration {
	waits := make([]time.Duration, 0, doublings)
	for n := 1; n <= doublings; n++ {
		waits = append(waits, min(r.Cap, r.Base<<n))
	}
	return waits
}

// Worker is how deliveries are taken from the store.
type Worker struct {
	// BatchSize is how many deliveries of one channel are claimed at once at most.
	BatchSize int `yaml:"batch_size" default:"50" min:"1" max:"1000"`
}

// NotifyHandler makes a notification of each kept message. Every value is an expression over the push, as in accept: a
// fixed text stands in quotes of its own, '"like this"'.
type NotifyHandler struct {
	// IdempotencyKey is the expression for what makes the notification that very one, from the business: pushes with the
	// same key make one notification.
	IdempotencyKey string `yaml:"idempotency_key" check:"value" required:"write idempotency_key: 'body.order_id + \":\" + body.status', say" example:"body.order_id + \":\" + body.status"`

	// BizType is the expression for what happened.
	BizType string `yaml:"biz_type" check:"value" required:"write biz_type: '\"order.status\"', say" example:"'\"order.status\"'"`

	// Template is the expression for the template's code.
	Template string `yaml:"template" check:"value" required:"write template: '\"order_status\"', say" example:"'\"order_status\"'"`

	// Recipient is whom to tell: id, and an expression for each address, by its kind. An address that is absent, null or
	// empty counts as none.
	Recipient map[string]string `yaml:"recipient" names:"kind" check:"value" items:"1 17" required:"write recipient: {id: body.user_id, email: body.user_email}, say" example:"{id: body.user_id, email: body.user_email}"`

	// Variables are the template's variables, an expression for each. One that is absent is left out.
	Variables map[string]string `yaml:"variables" names:"variable" default:"" check:"value" items:"0 100" example:"{title: body.title}"`

	// Priority is the expression for low, normal or high. Empty is normal.
	Priority string `yaml:"priority" default:"" check:"value" example:"'\"high\"'"`

	// Locale is the expression for the recipient's language. Empty, or absent, is the template's default.
	Locale string `yaml:"locale" default:"" check:"value" example:"body.user_locale"`
}

// Rate is how often something may happen, per second; 0 is without limit.
type Rate float64

// rateUnits are the units of a rate, in seconds.
var rateUnits = map[string]float64{"s": 1, "m": 60, "h": 3600}

// ParseRate reads a rate such as 50/s, 600/m or 1000/h. The error never repeats the text.
func ParseRate(s string) (Rate, error) {
	count, unit, _ := strings.Cut(strings.TrimSpace(s), "/")
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 32)
	seconds := rateUnits[strings.TrimSpace(unit)]
	if err != nil || seconds == 0 {
		return 0, fmt.Errorf("not %s", kindRate.wants())
	}
	return Rate(float64(n) / seconds), nil
}

// ChannelNames returns the names of all channels in alphabetical order.
func (c *Config) ChannelNames() []string {
	return slices.Sorted(maps.Keys(c.Channels))
}
