package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/httpapi"
)

// TestAPIKnowsTheTypesOfChannels: also of one that has nothing to send, whatever
// its name.
func TestAPIKnowsTheTypesOfChannels(t *testing.T) {
	n := &notifications{channels: []openChannel{
		{name: "bell", cfg: config.Channel{Type: config.ChannelInApp}},
		{name: "mail", cfg: config.Channel{Type: config.ChannelEmail}},
	}}
	var c httpapi.Config
	n.extend(&c)
	if diff := cmp.Diff(map[string]string{"bell": "in_app", "mail": "email"}, c.ChannelTypes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
