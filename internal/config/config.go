// Package config answers one question: what was this process told to do, and is that sound?
//
// It turns a YAML file and the environment into a checked [Config]. Either every key is right and a Config comes back,
// or every problem comes back at once, each with its line, its column and how to mend it; there is no half-checked
// Config. The types below are the only description of the file: decoding, defaults, limits, docs/configuration.md and
// the commented file of [Example] are all derived from their tags and comments.
//
// What it does not do: it opens no store and no port, and it knows no expression language (the caller hands in the
// compilers as [ParseParams.CheckExpression] and [ParseParams.CheckKey]).
//
// The tags: yaml is the key; default, min and max are written as in the file; oneof lists the allowed words;
// required says that the key must be written out, and how, and unless names the key beside it in whose presence it need not; items bounds a list's or a table of texts' length; names is the test of such a table's
// names (see nameChecks); check names a further test of a text (see textChecks); short lets the value of a group be written
// alone, for that key; example is a sample value for a key without a default.
package config

import (
	"maps"
	"slices"
	"time"
)

//go:generate go run ./gen

// Config is everything that `posthouse serve` was told. Only [Parse], [Load] and [Dev] make one.
type Config struct {
	// Listen is the address of the door: where senders push to, under /in/<source>. Written host:port; without a host
	// it listens on every interface. At most 8192 connections are open at once; further ones wait to be accepted.
	Listen string `yaml:"listen" default:"127.0.0.1:8080" check:"address"`

	// Admin is the API (/v1), /metrics, /healthz and /readyz.
	Admin Admin `yaml:"admin"`

	// Store is the database that keeps every message. A plain text is short for its url.
	Store Store `yaml:"store" short:"url" required:"write store: sqlite:./posthouse.db, or a postgres:// or mysql:// URL"`

	// Lock decides who may consume when several instances share a store.
	Lock Lock `yaml:"lock"`

	// Door bounds what receiving may use, over all sources together.
	Door Door `yaml:"door"`

	// Drain is how long a stopping process waits for handlers that are running before it ends their contexts and gives
	// what they had back.
	Drain time.Duration `yaml:"drain" default:"25s" min:"0s" max:"1h"`

	// Log is how the process reports on itself, on standard error.
	Log Log `yaml:"log"`

	// Sources are the senders that this process receives from, by name. The name is the last part of the URL that the
	// sender pushes to: a lower-case letter or digit, then up to 62 of a-z, 0-9, _ and -. Needed where there are no channels.
	Sources map[string]Source `yaml:"sources" unless:"channels" required:"add one: sources: {demo: {verify: {kind: none}}}"`

	// Templates is the folder of the templates: in it a folder for each, with a template.yaml and a file for each kind of
	// channel and language. Needed where there are channels.
	Templates string `yaml:"templates" default:"" check:"line" example:"./templates"`

	// Channels are the ways to reach people, by name. They need POSTHOUSE_KEYS.
	Channels map[string]Channel `yaml:"channels"`

	// Policies choose the channels of a notification. The first whose when holds decides; a notification for which none
	// holds is refused. Needed where there are channels.
	Policies []Policy `yaml:"policies" items:"0 1000"`

	// Retry is what follows a delivery's attempt that failed and may be repeated.
	Retry Retry `yaml:"retry"`

	// Worker is how deliveries are taken from the store.
	Worker Worker `yaml:"worker"`

	// Keys is what the environment variable POSTHOUSE_KEYS holds; nil where it is not set.
	Keys *KeyRing `yaml:"-"`
}

// Admin says where the API, the metrics and the health checks are served.
type Admin struct {
	// Listen is the address of /v1, /metrics, /healthz and /readyz, written host:port. It must be a loopback address,
	// since there are no API keys yet. The same address as that of the door puts both on one port.
	Listen string `yaml:"listen" default:"127.0.0.1:8081" check:"loopback"`
}

// Store is the database that keeps every message.
type Store struct {
	// URL names the database: sqlite:PATH, postgres://… or mysql://… (MySQL or MariaDB). A password in it comes from
	// the environment, as ${NAME}, never from this file's text; file:/path reads the whole URL from a file.
	URL Secret `yaml:"url" check:"store" required:"write url: sqlite:./posthouse.db, or a postgres:// or mysql:// URL" example:"postgres://posthouse:${DB_PASSWORD}@localhost/posthouse"`

	// AllowUnsafeDurability lets the process start on a server that does not write every commit to disk (fsync=off,
	// innodb_flush_log_at_trx_commit other than 1). A push that was answered 2xx can then be lost.
	AllowUnsafeDurability bool `yaml:"allow_unsafe_durability" default:"false"`

	// Migrate says whether the process brings the tables up to date when it starts. With off it refuses to start on
	// tables of another version; run posthouse migrate up yourself.
	Migrate Migrate `yaml:"migrate" default:"auto" oneof:"auto off"`
}

// Migrate says who brings the store's tables up to date.
type Migrate string

// The values of [Migrate].
const (
	MigrateAuto Migrate = "auto" // the process, when it starts, under a lock
	MigrateOff  Migrate = "off"  // an operator, with posthouse migrate up
)

// Lock decides who may consume when several instances share a store.
type Lock struct {
	// Backend is what excludes instances from one another: store is the database itself; redis is a Redis server that is
	// asked first. The database's own lease stands in either case, so that a Redis that forgets loses nothing.
	Backend LockBackend `yaml:"backend" default:"store" oneof:"store redis"`

	// URL names the Redis server, redis://… or rediss://… for TLS, with the number of the database as its path. A password
	// in it comes from the environment, as ${NAME}; file:/path reads the whole URL from a file. Instances of another store
	// need another server or database. Needed with backend: redis, and for it alone.
	URL Secret `yaml:"url" default:"" check:"redis" example:"redis://:${REDIS_PASSWORD}@localhost:6379/0"`

	// Lease is how long an instance that is heard of no more keeps what it holds. It is renewed every third of it; a
	// dead process lets go within a lease and a third.
	Lease time.Duration `yaml:"lease" default:"30s" min:"1s" max:"1h"`
}

// LockBackend is what excludes instances from one another.
type LockBackend string

// The values of [LockBackend].
const (
	LockBackendStore LockBackend = "store" // rows of the store
	LockBackendRedis LockBackend = "redis" // keys in Redis, and rows of the store
)

// Door bounds what receiving may use, over all sources together.
type Door struct {
	// Memory is how much all bodies that are being received or wait for their commit may take together. A push beyond
	// it is answered 503, so that the sender pushes again. It must be at least twice the largest limits.body.
	Memory Bytes `yaml:"memory" default:"256MiB" min:"1MiB" max:"64GiB"`
}

// Log is how the process reports on itself.
type Log struct {
	// Level is the least important kind of line that is written.
	Level LogLevel `yaml:"level" default:"info" oneof:"debug info warn error"`

	// Format is how a line is written: for people, or for a log collector.
	Format LogFormat `yaml:"format" default:"text" oneof:"text json"`
}

// LogLevel is the name of a log/slog level: slog.Level.UnmarshalText reads it.
type LogLevel string

// LogFormat is how log lines are written.
type LogFormat string

// The values of [LogFormat].
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Source is one sender: how its pushes are checked, answered, kept and handled.
type Source struct {
	// Verify is how a push proves that it comes from this sender. It must be written out: a source that takes anything
	// from anyone says so with {kind: none}.
	Verify Verify `yaml:"verify" required:"write verify: {kind: none} to take pushes from anyone, or verify: {kind: hmac, header: X-Hub-Signature-256, prefix: \"sha256=\", encoding: hex, secrets: [\"${NAME}\"]}"`

	// Accept is an expression over body, body_hash, headers, query, content_type and size that says which pushes are
	// kept. One for which it is false is acknowledged and not kept; one on which it cannot be evaluated is kept and
	// marked. Empty keeps all.
	Accept string `yaml:"accept" default:"" check:"expression" example:"body.msgType == 1008"`

	// Dedup keeps one of the pushes that are the same to their sender, who pushes again until it is answered.
	Dedup Dedup `yaml:"dedup"`

	// Acknowledge is the answer to a push that was kept, or that was not to be kept.
	Acknowledge Acknowledge `yaml:"acknowledge"`

	// AnswerWithin is when the sender has its answer at the latest, counted from its request's headers. If the commit is
	// not known by then the answer is 503; if the body is not in by then, 408.
	AnswerWithin time.Duration `yaml:"answer_within" default:"2s" min:"100ms" max:"30s"`

	// Limits bounds what this sender may use of the door.
	Limits Limits `yaml:"limits"`

	// Handler is what a kept message is handed to. It may be left out while the messages are only kept.
	Handler Handler `yaml:"handler"`

	// Consume is how kept messages are handed to the handler.
	Consume Consume `yaml:"consume"`
}

// Dedup keeps one of the pushes that are the same to their sender.
type Dedup struct {
	// Key is the expression that tells what is the same: a string, a number, a boolean, or a list of these. It is
	// compared byte for byte and with its type, within this source. A push whose key is known is acknowledged and not
	// kept; one on which it cannot be evaluated, or is an empty text, is kept and marked. body_hash (the SHA-256 of the
	// exact body) takes the whole body. Empty keeps every push.
	Key string `yaml:"key" default:"" check:"key" example:"body.id"`

	// Window is how long a key is known after its first push was kept, however short its message is kept. Senders
	// push again for days.
	Window time.Duration `yaml:"window" default:"8d" min:"8d" max:"400d"`
}

// Verify is how a push proves that it comes from its sender.
type Verify struct {
	// Kind is the scheme: none takes pushes from anyone, hmac checks an HMAC-SHA256 over the exact bytes of the body.
	Kind VerifyKind `yaml:"kind" oneof:"none hmac" required:"write kind: none or kind: hmac"`

	// Header is the request header that carries the signature, and none that HTTP itself uses up (Host, Trailer,
	// Transfer-Encoding). Needed with kind: hmac, and for it alone.
	Header string `yaml:"header" default:"" check:"header" example:"X-Hub-Signature-256"`

	// Prefix is the text before the signature in that header. For kind: hmac alone.
	Prefix string `yaml:"prefix" default:"" check:"line" example:"sha256="`

	// Encoding is how the signature's bytes are written. For kind: hmac alone.
	Encoding Encoding `yaml:"encoding" default:"hex" oneof:"hex base64"`

	// Secrets are the keys of which any may have signed, so that one can be replaced without a gap. Each is ${NAME} or
	// file:/path: a secret written out is refused. Needed with kind: hmac, and for it alone.
	Secrets []Secret `yaml:"secrets" default:"" items:"0 16" check:"outside" example:"[\"${DEMO_SECRET}\"]"`
}

// VerifyKind names a scheme by which pushes are signed.
type VerifyKind string

// The values of [VerifyKind].
const (
	VerifyNone VerifyKind = "none" // nothing is checked
	VerifyHMAC VerifyKind = "hmac" // HMAC-SHA256 over the body
)

// Encoding is how the bytes of a signature are written as text.
type Encoding string

// The values of [Encoding].
const (
	EncodingHex    Encoding = "hex"
	EncodingBase64 Encoding = "base64"
)

// Acknowledge is the answer to a push that needs no second try.
type Acknowledge struct {
	// Status is the HTTP status.
	Status int `yaml:"status" default:"200" min:"200" max:"299"`

	// Body is the exact text of the answer.
	Body string `yaml:"body" default:""`

	// ContentType is the answer's Content-Type.
	ContentType string `yaml:"content_type" default:"text/plain" check:"mediatype"`
}

// Limits bounds what one sender may use of the door.
type Limits struct {
	// Body is the largest body that is taken, counted after any transfer coding. A larger one is answered 413. It can be
	// at most half of door.memory, so that one push never shuts out all others.
	Body Bytes `yaml:"body" default:"1MiB" min:"1" max:"64MiB"`

	// Concurrency is how many pushes may be in the door at once. One more is answered 503 with Retry-After.
	Concurrency int `yaml:"concurrency" default:"256" min:"1" max:"65536"`
}

// Handler is what a kept message is handed to. At most one of its fields is not nil.
type Handler struct {
	// HTTP hands each message over as a POST with the exact body and content type. Any 2xx is success; redirects are
	// not followed.
	HTTP *HTTPHandler `yaml:"http"`

	// Notify makes a notification of each message, in place of http. Every value is an expression over the push, as in
	// accept: a fixed text stands in quotes of its own, as in '"order_status"'.
	Notify *NotifyHandler `yaml:"notify"`
}

// HTTPHandler is a handler that is reached over HTTP.
type HTTPHandler struct {
	// URL is where each message is posted to, http or https, without a user or password.
	URL string `yaml:"url" check:"httpurl" required:"write url: https://example.com/path" example:"http://127.0.0.1:9000/push"`

	// AllowPrivate lets that URL lead to a loopback, private or link-local address, which is refused otherwise.
	AllowPrivate bool `yaml:"allow_private" default:"false"`
}

// Consume is how kept messages are handed to the handler.
type Consume struct {
	// Enabled is whether messages are handled or only kept. It is the first value of a switch that the store remembers:
	// once it has been changed there, the stored one wins.
	Enabled bool `yaml:"enabled" default:"false"`

	// Order is which messages may run at once: serial is one after the other, the oldest due first; keyed is one after
	// the other for each key; parallel is as many as there is room for, in no order. It holds over all instances, once
	// all that run ask for the same.
	Order Order `yaml:"order" default:"serial" oneof:"serial keyed parallel"`

	// Key is the expression that tells what keyed order keeps in order: a string, a number, a boolean, or a list of these.
	// It sees headers and query as they are kept, which is without credentials. Messages on which it cannot be evaluated
	// are marked, and kept in order as if they had one key. It has no effect on the other orders.
	Key string `yaml:"key" default:"" check:"key" example:"body.customerId"`

	// Partitions is how many keys may be worked on at once in keyed order, over all instances. It has no effect on the
	// other orders.
	Partitions int `yaml:"partitions" default:"16" min:"1" max:"256"`

	// OnRetry is what a message that waits for its next attempt does to those behind it: skip lets them pass; block keeps
	// those of its key, which in serial order are all, until it has succeeded or failed for good. Parallel order
	// can only skip.
	OnRetry OnRetry `yaml:"on_retry" default:"skip" oneof:"skip block"`

	// Concurrency is how many handlers of this source run at once in this process in parallel order, and how many
	// partitions it works on at once in keyed order. It has no effect on serial order.
	Concurrency int `yaml:"concurrency" default:"64" min:"1" max:"10000"`

	// RoundInterval is the longest wait between two rounds while nothing is due. A new message starts a round at once.
	RoundInterval time.Duration `yaml:"round_interval" default:"2s" min:"100ms" max:"24h"`

	// BatchSize is how many messages one round takes at most.
	BatchSize int `yaml:"batch_size" default:"50" min:"1" max:"1000"`

	// MaxRetry is how often a message that did not succeed is tried again: 3 makes 4 attempts.
	MaxRetry int `yaml:"max_retry" default:"3" min:"0" max:"100"`

	// Backoff is how long to wait before the first retry, the second, and so on. The last one holds for all that follow.
	Backoff []time.Duration `yaml:"backoff" default:"30s, 2m, 10m" min:"1ms" max:"24h" items:"0 100"`

	// OrphanAfter is how long after the start of its attempt a message is taken from a handler that does not return. It
	// must be at least 2 × timeout, or a handler that is only late would run beside its own successor; at least
	// 5 × timeout is advised.
	OrphanAfter time.Duration `yaml:"orphan_after" default:"5m" min:"200ms" max:"30d"`

	// Timeout is how long one attempt may take. It counts as a failed attempt.
	Timeout time.Duration `yaml:"timeout" default:"60s" min:"100ms" max:"24h"`

	// TripAfter is how many timeouts in a row end a round early.
	TripAfter int `yaml:"trip_after" default:"3" min:"1" max:"1000"`
}

// Order is which messages of a source may run at once.
type Order string

// The values of [Order].
const (
	OrderSerial   Order = "serial"   // one after the other
	OrderKeyed    Order = "keyed"    // one after the other for each key
	OrderParallel Order = "parallel" // as many as there is room for
)

// OnRetry is what a message that waits for its next attempt does to those behind it.
type OnRetry string

// The values of [OnRetry].
const (
	OnRetrySkip  OnRetry = "skip"  // lets them pass it
	OnRetryBlock OnRetry = "block" // keeps those of its key behind it
)

// SourceNames returns the names of all sources in alphabetical order.
func (c *Config) SourceNames() []string {
	return slices.Sorted(maps.Keys(c.Sources))
}
