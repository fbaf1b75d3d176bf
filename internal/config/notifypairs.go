package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// notificationPairs tests what channels, policies and those who make notifications need of one another, and gives the
// channels what follows from their type.
func (d *decoder) notificationPairs(c *Config) {
	inApp := ""
	for _, name := range c.ChannelNames() {
		channel := c.Channels[name]
		path := join("channels", printable(name))
		if channel.Type == "" && name == string(ChannelInApp) {
			channel.Type = ChannelInApp
		}
		d.channelPairs(path, channel)
		if channel.Type == ChannelInApp {
			if inApp != "" {
				d.fail(path, "is a second channel of type: in_app, and a user has one list of messages", "keep one")
			}
			inApp = name
		}
		c.Channels[name] = d.filled(path, channel, c.Retry)
	}
	if len(c.Channels) > 0 && d.sound("channels") {
		if c.Templates == "" && d.sound("templates") {
			d.fail("templates", "is missing, but there are channels", "write templates: ./templates")
		}
		if len(c.Policies) == 0 && d.sound("policies") {
			d.fail("policies", "is missing, but there are channels: nothing would ever be sent", "write policies: [{send: [NAME]}]")
		}
	}
	d.retryPair("retry", c.Retry)
	d.policyPairs(c)
	for _, name := range c.SourceNames() {
		d.notifyPairs(join("sources", printable(name))+".handler.notify", c.Sources[name].Handler.Notify, c)
	}
}

// channelKeys are the keys that have a meaning for each type, beside type itself.
var channelKeys = map[ChannelType][]string{
	ChannelInApp: {"template"},
	ChannelEmail: {"smtp", "from", "address", "template", "on_uncertain", "rate", "concurrency", "breaker", "retry"},
	ChannelHTTP:  {"request", "classify", "provider_id", "address", "template", "on_uncertain", "rate", "concurrency", "breaker", "retry"},
}

func (d *decoder) channelPairs(path string, c Channel) {
	if !d.sound(join(path, "type")) {
		return
	}
	meaningful, known := channelKeys[c.Type]
	if !known {
		d.fail(join(path, "type"), "is missing", "write type: email, type: http or type: in_app")
		return
	}
	for _, k := range keysOf(channelType) {
		if here := join(path, k.name); k.name != "type" && d.written(here) && !slices.Contains(meaningful, k.name) {
			d.fail(here, "has no meaning with type: "+string(c.Type), "leave it out")
		}
	}
	smtp, from, request := join(path, "smtp"), join(path, "from"), join(path, "request")
	switch {
	case c.Type == ChannelEmail:
		if c.SMTP == nil && d.sound(smtp) {
			d.fail(smtp, "is missing", `write smtp: {host: mail.example.com, username: "${MAIL_USERNAME}", password: "${MAIL_PASSWORD}"}`)
		}
		if c.From == "" && d.sound(from) {
			d.fail(from, "is missing", `write from: "Approvals <no-reply@example.com>"`)
		}
		if c.SMTP != nil {
			d.smtpPairs(smtp, *c.SMTP)
		}
	case c.Type == ChannelHTTP && c.Request != nil:
		d.requestPairs(request, *c.Request)
	case c.Type == ChannelHTTP:
		if d.sound(request) {
			d.fail(request, "is missing", `write request: {url: https://sms.example.com/send, body: '{"to": {{json .address}}, "text": {{json .body}}}'}`)
		}
	}
	if c.Retry != nil {
		d.retryPair(join(path, "retry"), *c.Retry)
	}
}

func (d *decoder) smtpPairs(path string, s SMTP) {
	username, password, mode := join(path, "username"), join(path, "password"), join(path, "tls")
	if !d.sound(username, password, mode) {
		return
	}
	switch {
	case s.Username == "" && s.Password != "":
		d.fail(password, "has no meaning without username", "write username, or leave it out")
	case s.Username != "" && s.Password == "":
		d.fail(password, "is missing, but there is a username", `write password: "${MAIL_PASSWORD}"`)
	case s.TLS == TLSNone && s.Password != "" && !isLoopbackHost(s.Host):
		d.fail(mode, "is none, so that the password would be sent in the clear", "write tls: starttls or tls: implicit")
	case s.TLS == TLSNone && !isLoopbackHost(s.Host):
		d.warn(mode, "is none: mail is sent in the clear", "write tls: starttls or tls: implicit")
	}
}

func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// retryPair: the cap is that of what grows from base.
func (d *decoder) retryPair(path string, r Retry) {
	base, limit := join(path, "base"), join(path, "cap")
	if d.written(base) && d.written(limit) && d.sound(base, limit) && r.Cap < r.Base {
		d.fail(limit, fmt.Sprintf("cap %s is below base %s", formatDuration(r.Cap), formatDuration(r.Base)), "raise cap or lower base")
	}
}

// filled returns the channel with what its type says where it says nothing itself.
func (d *decoder) filled(path string, c Channel, common Retry) Channel {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	uncertain := string(c.OnUncertain)
	switch c.Type {
	case ChannelInApp:
		fill(&c.Template, "in_app")
	case ChannelEmail, ChannelMailbox:
		fill(&c.Address, "email")
		fill(&c.Template, "email")
		fill(&uncertain, string(Resend))
	case ChannelHTTP:
		fill(&c.Address, "phone")
		fill(&c.Template, "text")
		fill(&uncertain, string(Hold))
	}
	c.OnUncertain = OnUncertain(uncertain)
	if c.SMTP != nil && c.SMTP.TLS == TLSImplicit && !d.written(join(path, "smtp.port")) {
		c.SMTP.Port = 465
	}
	if c.Retry == nil {
		c.Retry = &common
		return c
	}
	retry := join(path, "retry")
	inherit(d, join(retry, "base"), &c.Retry.Base, common.Base)
	inherit(d, join(retry, "cap"), &c.Retry.Cap, common.Cap)
	inherit(d, join(retry, "jitter"), &c.Retry.Jitter, common.Jitter)
	inherit(d, join(retry, "max_attempts"), &c.Retry.MaxAttempts, common.MaxAttempts)
	return c
}

func inherit[T any](d *decoder, path string, field *T, value T) {
	if !d.written(path) {
		*field = value
	}
}

// policyPairs: names that policies use must exist, and each policy must be reached.
func (d *decoder) policyPairs(c *Config) {
	used := map[string]bool{}
	last := -1 // the policy that holds for all
	kinds := c.addressKinds()
	for i, p := range c.Policies {
		path := "policies[" + strconv.Itoa(i) + "]"
		if last >= 0 {
			d.fail(path, fmt.Sprintf("is never reached: policy %d before it has no when, and so holds for all", last+1), "put it before that one, or give that one a when")
		}
		if p.When == "" && last < 0 && d.sound(join(path, "when")) {
			last = i
		}
		d.kindsPair(join(path, "when"), p.When, kinds)
		d.namesPair(join(path, "send"), p.Send, slices.Sorted(maps.Keys(c.Channels)), "names no channel")
		// Only what is a channel's name may be shown: send may hold what came from outside.
		sent := slices.DeleteFunc(slices.Clone(p.Send), func(name string) bool { _, found := c.Channels[name]; return !found })
		slices.Sort(sent)
		sent = slices.Compact(sent)
		d.namesPair(join(path, "success.all"), p.Success.All, sent, "names a channel that is not in send")
		d.namesPair(join(path, "success.any"), p.Success.Any, sent, "names a channel that is not in send")
		for _, name := range p.Send {
			used[name] = true
		}
	}
	if len(c.Policies) == 0 {
		return
	}
	for _, name := range c.ChannelNames() {
		if !used[name] {
			d.warn(join("channels", printable(name)), "is sent through by no policy", "")
		}
	}
}

// addressKinds are the kinds of addresses that channels use, in alphabetical order.
func (c *Config) addressKinds() []string {
	kinds := map[string]bool{}
	for _, channel := range c.Channels {
		if channel.Address != "" {
			kinds[channel.Address] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// kindsPair: a condition that asks for an address which no channel uses may be misspelt.
func (d *decoder) kindsPair(path, when string, known []string) {
	if when == "" || d.params.PolicyKinds == nil || !d.sound(path) || !d.sound("channels") {
		return
	}
	for _, kind := range d.params.PolicyKinds(when) {
		if slices.Contains(known, kind) {
			continue
		}
		message, fix := "asks for a kind of address that no channel uses", ""
		if !d.read[path].outside {
			message += ": recipient." + printable(kind)
			if near := closest(kind, known); near != "" {
				fix = "did you mean recipient." + near + "?"
			}
		}
		d.warn(path, message, fix)
	}
}

// namesPair: each name is known, and stands once.
func (d *decoder) namesPair(path string, names, known []string, unknown string) {
	for i, name := range names {
		here := path + "[" + strconv.Itoa(i) + "]"
		if !d.sound(here) {
			continue
		}
		if slices.Contains(names[:i], name) {
			d.fail(here, "stands twice", "keep one")
			continue
		}
		if !slices.Contains(known, name) {
			fix := "write one of " + strings.Join(known, ", ")
			if near := closest(name, known); near != "" {
				fix = "did you mean " + near + "?"
			} else if len(known) == 0 {
				fix = "add it"
			}
			d.fail(here, unknown, fix)
		}
	}
}

func (d *decoder) notifyPairs(path string, n *NotifyHandler, c *Config) {
	if n == nil {
		return
	}
	if len(c.Channels) == 0 && d.sound("channels") {
		d.fail(path, "makes notifications, but there are no channels", "write channels, policies and templates")
	}
	recipient := join(path, "recipient")
	if _, found := n.Recipient["id"]; !found && d.sound(recipient) {
		d.fail(recipient, "has no id", "write recipient: {id: body.user_id}, say")
	}
}
