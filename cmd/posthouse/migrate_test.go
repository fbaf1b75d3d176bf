package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

// TestMigrateDownSaysWhatGoes takes a store that was served from back, version by
// version.
func TestMigrateDownSaysWhatGoes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ph.db")
	fill(t, path)
	s, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var channels []model.SourceSpec
	for _, name := range []string{"mail", "text"} {
		channels = append(channels, model.SourceSpec{Name: model.ChannelPrefix + name, Tenant: model.TenantDelivery})
	}
	if _, err := s.Register(t.Context(), channels); err != nil {
		t.Fatal(err)
	}
	versions, err := s.SchemaStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	words := map[int][]string{ // what must be told
		3: {"1 source and 2 channels", "all notifications", "idempotency keys", "audit log", "no message is lost"},
		2: {"cannot be told", "no message is lost", "duplicates", "order"},
		1: {"cannot be told", "all messages"},
	}
	if len(versions) != len(losses) || len(versions) != len(words) {
		t.Fatalf("%d versions, %d of which are told what goes, and %d are tested", len(versions), len(losses), len(words))
	}
	for version := len(versions); version > 0; version-- {
		_, e, code := posthouse(t, dir, "migrate", "down", "--store", "sqlite:"+path)
		if code != 1 || strings.Count(e, "\n") != 1 || !strings.Contains(e, "--force") {
			t.Errorf("version %d: %d %q", version, code, e)
		}
		for _, word := range words[version] {
			if !strings.Contains(e, word) {
				t.Errorf("version %d: %q lacks %q", version, e, word)
			}
		}
		if _, e, code := posthouse(t, dir, "migrate", "down", "--force", "--store", "sqlite:"+path); code != 0 {
			t.Fatalf("version %d: %d %q", version, code, e)
		}
	}
	if !strings.HasPrefix(loss(99), "without version 99 ") {
		t.Error(loss(99))
	}
}

func TestUsersOfAStore(t *testing.T) {
	source, channel := model.Source{Tenant: model.TenantInbox}, model.Source{Tenant: model.TenantDelivery}
	for want, queues := range map[string][]model.Source{
		"1 source":                {source},
		"2 channels":              {channel, channel},
		"2 sources and 1 channel": {source, channel, source},
	} {
		if got := users(queues); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
