package app

import (
	"fmt"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/email"
	"github.com/posthouse/posthouse/internal/channel/gateway"
	"github.com/posthouse/posthouse/internal/channel/mailbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// senderOf makes a channel's sender, and what checks its addresses. In-app has
// neither.
func (n *notifications) senderOf(c config.Channel) (channel.Sender, channel.Addresses, error) {
	switch c.Type {
	case config.ChannelInApp:
		return nil, nil, nil
	case config.ChannelEmail:
		s, err := email.New(email.Config{
			Host: c.SMTP.Host, Port: c.SMTP.Port, Username: c.SMTP.Username, Password: c.SMTP.Password.Reveal(),
			TLS: tlsModes[c.SMTP.TLS], ConnectTimeout: c.SMTP.ConnectTimeout, ReadTimeout: c.SMTP.ReadTimeout,
			From: c.From, MaxConnections: c.Concurrency,
		})
		if err != nil { // not s, which is nil, but not as an interface
			return nil, nil, err
		}
		return s, email.Addresses{}, nil
	case config.ChannelHTTP:
		s, err := gatewayOf(c)
		if err != nil {
			return nil, nil, err
		}
		return s, gateway.Addresses{}, nil
	case config.ChannelMailbox:
		m, err := mailbox.New(devFrom)
		if err != nil {
			return nil, nil, err
		}
		n.mailbox = m
		return m, email.Addresses{}, nil
	}
	return nil, nil, fmt.Errorf("type %q is not known", c.Type)
}

// devFrom is who the mail is from that is only looked at.
const devFrom = "Posthouse <no-reply@example.com>"

var tlsModes = map[config.TLSMode]email.TLS{
	config.TLSStart: email.StartTLS, config.TLSImplicit: email.Implicit, config.TLSNone: email.NoTLS,
}

func gatewayOf(c config.Channel) (*gateway.Sender, error) {
	headers := make(map[string]string, len(c.Request.Headers))
	for name, value := range c.Request.Headers {
		headers[name] = value.Reveal()
	}
	g := gateway.Config{
		Method: c.Request.Method, URL: c.Request.URL.Reveal(), Headers: headers, Body: c.Request.Body.Reveal(),
		ConnectTimeout: c.Request.ConnectTimeout, ReadTimeout: c.Request.ReadTimeout,
		Connections: c.Concurrency, Version: telemetry.Version(),
	}
	for i, rule := range c.Classify {
		r, err := gateway.CompileRule(rule.When, model.Class(rule.Class))
		if err != nil {
			return nil, fmt.Errorf("classify[%d].when: %w", i, err)
		}
		g.Classify = append(g.Classify, r)
	}
	if c.ProviderID != "" {
		var err error
		if g.ProviderID, g.UsesBody, err = gateway.CompileProviderID(c.ProviderID); err != nil {
			return nil, fmt.Errorf("provider_id: %w", err)
		}
	}
	return gateway.New(g)
}
