package config

import (
	"fmt"
)

// defaultPartitions is the default of partitions, as its tag has it: written out as such it is no cause for a warning.
const defaultPartitions = 16

// pairs tests what no key can tell alone: keys that must fit one another. A key whose own value is wrong has been
// reported already, and is not compared with.
func (d *decoder) pairs(c *Config) {
	if c.Store.AllowUnsafeDurability && d.sound("store.allow_unsafe_durability") {
		d.warn("store.allow_unsafe_durability", "a push that was answered 2xx may be lost when the database's machine fails", "")
	}
	d.lockPair(c.Lock)
	for _, name := range c.SourceNames() {
		source := c.Sources[name]
		path := join("sources", printable(name))
		d.verifyPairs(join(path, "verify"), source.Verify)
		d.doorPairs(path, source, c.Door)
		d.handlerPairs(path, source)
		d.dedupPair(join(path, "dedup"), source.Dedup)
		d.consumePairs(join(path, "consume"), source.Consume)
	}
	d.notificationPairs(c)
}

// lockPair: what a backend needs, and what has no meaning for it.
func (d *decoder) lockPair(l Lock) {
	const url = "lock.url"
	if !d.sound("lock.backend", url) {
		return
	}
	switch {
	case l.Backend == LockBackendRedis && l.URL == "":
		d.fail(url, "is missing", "write url: redis://:${REDIS_PASSWORD}@host:6379/0")
	case l.Backend != LockBackendRedis && d.written(url):
		d.fail(url, "has no meaning with backend: "+string(l.Backend), "write backend: redis, or leave it out")
	}
}

// dedupPair: a window is that of a key.
func (d *decoder) dedupPair(path string, s Dedup) {
	key, window := join(path, "key"), join(path, "window")
	if d.written(window) && s.Key == "" && d.sound(key) {
		d.fail(key, "is missing", "name what is the same to the sender, as in key: body.id, or leave window out")
	}
}

// verifyPairs: what a scheme needs, and what has no meaning for it.
func (d *decoder) verifyPairs(path string, v Verify) {
	kind := join(path, "kind")
	if !d.sound(kind) {
		return
	}
	header, secrets := join(path, "header"), join(path, "secrets")
	switch v.Kind {
	case VerifyNone:
		for _, name := range []string{"header", "prefix", "encoding", "secrets"} {
			if here := join(path, name); d.written(here) {
				d.fail(here, "has no meaning with kind: none", "write kind: hmac, or leave it out")
			}
		}
	case VerifyHMAC:
		if v.Header == "" && d.sound(header) {
			d.fail(header, "is missing", "name the header that carries the signature, as in header: X-Hub-Signature-256")
		}
		if len(v.Secrets) == 0 && d.sound(secrets) {
			d.fail(secrets, "is missing", `write secrets: ["${NAME}"]`)
		}
	}
}

func (d *decoder) doorPairs(path string, s Source, door Door) {
	body, memory := join(path, "limits.body"), "door.memory"
	if d.sound(body, memory) && s.Limits.Body > door.Memory/2 {
		d.fail(body, fmt.Sprintf("%s is above half of %s (%s), so that the largest push might never be taken", s.Limits.Body, memory, door.Memory),
			"lower limits.body or raise "+memory)
	}
	status, answer := join(path, "acknowledge.status"), join(path, "acknowledge.body")
	if d.sound(status, answer) && (s.Acknowledge.Status == 204 || s.Acknowledge.Status == 205) && s.Acknowledge.Body != "" {
		d.fail(answer, fmt.Sprintf("an answer with status %d has no body", s.Acknowledge.Status), "leave body out, or write status: 200")
	}
}

func (d *decoder) handlerPairs(path string, s Source) {
	enabled, handler := join(path, "consume.enabled"), join(path, "handler")
	if s.Handler.HTTP != nil && s.Handler.Notify != nil {
		d.fail(join(handler, "notify"), "stands beside http, and a message is handed to one of them", "keep one")
	}
	if s.Handler.HTTP == nil {
		if s.Handler.Notify != nil {
			return
		}
		if s.Consume.Enabled && d.sound(enabled, handler) {
			d.fail(enabled, "is true, but there is no handler to hand messages to", "write handler: {http: {url: https://example.com/path}}")
		}
		return
	}
	url, allow := join(handler, "http.url"), join(handler, "http.allow_private")
	if d.sound(url, allow) && !s.Handler.HTTP.AllowPrivate && leadsInside(s.Handler.HTTP.URL) {
		d.fail(url, "leads to a loopback, private or link-local address", "write allow_private: true if that is meant")
	}
}

func (d *decoder) consumePairs(path string, c Consume) {
	orphan, timeout := join(path, "orphan_after"), join(path, "timeout")
	if d.sound(orphan, timeout) {
		d.orphanPair(orphan, timeout, c)
	}
	retries, backoff := join(path, "max_retry"), join(path, "backoff")
	if d.sound(retries, backoff) && c.MaxRetry > 0 && len(c.Backoff) == 0 {
		d.fail(backoff, fmt.Sprintf("is empty, but max_retry is %d", c.MaxRetry), "write at least one duration, or max_retry: 0")
	}
	if d.sound(join(path, "order")) {
		d.orderPairs(path, c)
	}
}

// orderPairs: what an order needs, and what has no meaning or no effect with it.
func (d *decoder) orderPairs(path string, c Consume) {
	key, partitions, retry := join(path, "key"), join(path, "partitions"), join(path, "on_retry")
	if c.Order == OrderParallel && c.OnRetry == OnRetryBlock && d.sound(retry) {
		d.fail(retry, "is block, but in parallel order no message is behind another", "write on_retry: skip, or order: keyed")
	}
	if c.Order == OrderKeyed {
		if c.Key == "" && d.sound(key) {
			d.fail(key, "is missing, but order is keyed", "name what is to be kept in order, as in key: body.customerId")
		}
		return
	}
	if c.Key != "" && d.sound(key) {
		d.warn(key, "has no effect with order: "+string(c.Order), "")
	}
	if c.Partitions != defaultPartitions && d.sound(partitions) {
		d.warn(partitions, "has no effect with order: "+string(c.Order), "")
	}
}

// orphanPair: a message is taken from its handler only once that handler is clearly beyond its timeout.
func (d *decoder) orphanPair(orphan, timeout string, c Consume) {
	at := orphan
	if !d.written(orphan) {
		at = timeout
	}
	switch {
	case c.OrphanAfter < 2*c.Timeout:
		d.fail(at, fmt.Sprintf("orphan_after %s is below 2 × timeout %s", formatDuration(c.OrphanAfter), formatDuration(c.Timeout)),
			"raise orphan_after or lower timeout")
	case c.OrphanAfter < 5*c.Timeout:
		d.warn(at, fmt.Sprintf("orphan_after %s is below 5 × timeout %s", formatDuration(c.OrphanAfter), formatDuration(c.Timeout)),
			"raise orphan_after or lower timeout")
	}
}
