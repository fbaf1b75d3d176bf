package app

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
)

// What the check of a configuration passes is started, at the limits of each
// key; what would not start is told by the check.
func TestCheckAndServeAgree(t *testing.T) {
	const hmac = "verify: {kind: hmac, header: X-Sig, secrets: ['${S}']}"
	for source, passes := range map[string]bool{
		"verify: {kind: none}, limits: {body: 4MiB}":                                                                  true,
		"verify: {kind: none}, limits: {body: 4194305}":                                                               false,
		"verify: {kind: none}, limits: {body: 1, concurrency: 65536}":                                                 true,
		"verify: {kind: none}, limits: {concurrency: 1}":                                                              true,
		"verify: {kind: none}, acknowledge: {status: 204, body: x}":                                                   false,
		"verify: {kind: none}, acknowledge: {status: 204}":                                                            true,
		"verify: {kind: none}, acknowledge: {status: 299, body: x}":                                                   true,
		"verify: {kind: none}, acknowledge: {status: 300}":                                                            false,
		"verify: {kind: none}, answer_within: 30s":                                                                    true,
		"verify: {kind: none}, answer_within: 31s":                                                                    false,
		"verify: {kind: none}, accept: 'body.a =='":                                                                   false,
		"verify: {kind: none}, accept: 'body.a == 1'":                                                                 true,
		"verify: {kind: none}, dedup: {key: 'body.id'}":                                                               true,
		"verify: {kind: none}, dedup: {key: 'nil'}":                                                                   false,
		"verify: {kind: none}, dedup: {key: body_hash, window: 400d}":                                                 true,
		"verify: {kind: none}, consume: {order: keyed}":                                                               false,
		"verify: {kind: none}, consume: {order: keyed, key: '1'}":                                                     false,
		"verify: {kind: none}, consume: {order: keyed, key: 'body.id', partitions: 1}":                                true,
		"verify: {kind: none}, consume: {order: keyed, key: '[body.a, headers.B]', partitions: 256, on_retry: block}": true,
		"verify: {kind: none}, consume: {order: keyed, key: 'body.id', partitions: 257}":                              false,
		"verify: {kind: none}, consume: {order: serial, on_retry: block, key: 'body.id'}":                             true,
		"verify: {kind: none}, consume: {order: parallel, on_retry: block}":                                           false,
		"verify: {kind: none}, consume: {order: parallel, partitions: 3}":                                             true,
		"verify: {kind: other}":                                                                                       false,
		hmac:                                                                                                          true,
		"verify: {kind: hmac, header: X-Sig, secrets: ['${EMPTY}']}":                                                  false,
		"verify: {kind: hmac, header: X-Sig, secrets: []}":                                                            false,
		"verify: {kind: hmac, secrets: ['${S}']}":                                                                     false,
		"verify: {kind: hmac, header: 'X Sig', secrets: ['${S}']}":                                                    false,
		"verify: {kind: hmac, header: X-Sig, prefix: \"a\\nb\", secrets: ['${S}']}":                                   false,
		"verify: {kind: hmac, header: X-Sig, encoding: raw, secrets: ['${S}']}":                                       false,
		"verify: {kind: none}, handler: {http: {url: 'https://example.com:0'}}":                                       false,
		"verify: {kind: none}, handler: {http: {url: 'https://example.com:'}}":                                        true,
		"verify: {kind: none}, handler: {http: {url: 'https://example.com:65535/?q=1'}}":                              true,
		"verify: {kind: none}, handler: {http: {url: 'https://:1/'}}":                                                 false,
		"verify: {kind: none}, handler: {http: {url: 'https://h/#f'}}":                                                false,
		"verify: {kind: none}, handler: {http: {url: 'https://h/'}}, consume: {enabled: true, timeout: 100ms, orphan_after: 200ms, max_retry: 0, backoff: []}":          true,
		"verify: {kind: none}, handler: {http: {url: 'https://h/'}}, consume: {enabled: true, timeout: 24h, orphan_after: 2d, order: parallel, concurrency: 10000}":     true,
		"verify: {kind: none}, handler: {http: {url: 'https://h/'}}, consume: {enabled: true, batch_size: 1000, trip_after: 1000, round_interval: 24h, max_retry: 100}": true,
		"verify: {kind: none}, handler: {http: {url: 'https://h/'}}, consume: {enabled: true, timeout: 1m, orphan_after: 1m}":                                           false,
	} {
		t.Run(source, func(t *testing.T) {
			yaml := "store: 'sqlite:" + filepath.Join(t.TempDir(), "ph.db") + "'\ndoor: {memory: 8MiB}\nlock: {lease: 1s}\ndrain: 0s\nsources: {a: {" + source + "}}"
			cfg, problems, _ := config.Parse(config.ParseParams{
				Data: []byte(yaml), File: "posthouse.yaml",
				LookupEnv: func(name string) (string, bool) {
					return map[string]string{"S": "secret"}[name], name == "S" || name == "EMPTY"
				},
				CheckExpression: func(s string) error { _, err := expression.Compile(s); return err },
				CheckKey:        func(s string) error { _, err := expression.CompileKey(s); return err },
			})
			if passes != (len(problems) == 0) {
				t.Fatalf("the check says %v", problems)
			}
			if !passes {
				if text := problems[0].String(); !strings.Contains(text, "sources.a.") {
					t.Errorf("the check says %s", text)
				}
				return
			}
			store, err := OpenStore(t.Context(), StoreParams{URL: cfg.Store.URL.Reveal(), Consumer: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			p := Params{Config: cfg, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry()}
			if err := prepare(t.Context(), store, p); err != nil {
				t.Fatal(err)
			}
			sources, err := sourcesOf(cfg, nil, nil)
			if err != nil {
				t.Fatalf("the check passes what does not start: %v", err)
			}
			if _, err := openInbox(t.Context(), parts{store: store, sources: sources}, p); err != nil {
				t.Errorf("the check passes what does not start: %v", err)
			}
		})
	}
}
