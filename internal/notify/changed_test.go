package notify

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/template"
)

func TestARepeatAfterTheTemplateHasChanged(t *testing.T) {
	k := newKit(t, nil)
	first := k.accept(t, submission())
	with := func(change func(fstest.MapFS)) *Center {
		t.Helper()
		folder := maps.Clone(testTemplates)
		change(folder)
		set, problems := template.Load(folder)
		if set == nil {
			t.Fatal(problems)
		}
		cfg := k.cfg
		cfg.Templates, cfg.Registerer = set, prometheus.NewRegistry()
		return k.center(t, cfg)
	}
	renamed := with(func(folder fstest.MapFS) {
		for name, file := range folder {
			if strings.HasPrefix(name, "todo/") {
				folder[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(file.Data), "title", "headline"))}
			}
		}
	})
	gone := with(func(folder fstest.MapFS) {
		for name := range folder {
			if strings.HasPrefix(name, "todo/") {
				delete(folder, name)
			}
		}
	})
	for name, c := range map[string]*Center{"its variables have other names": renamed, "it is gone": gone} {
		t.Run("NC-02 the first answer again: "+name, func(t *testing.T) {
			again, err := c.Accept(t.Context(), submission())
			if err != nil || again.ID != first.ID || !again.Duplicate || len(again.Deliveries) != len(first.Deliveries) {
				t.Errorf("got %+v, %v", again, err)
			}
		})
		t.Run("NC-02 another content is refused: "+name, func(t *testing.T) {
			s := submission()
			s.Variables = []byte(`{"title":"Elsewhere","amount":1,"code":"` + secretCode + `"}`)
			if err := refused(t, c, s); err.Code != Invalid {
				t.Errorf("got %+v", err)
			}
		})
		t.Run("NC-02 another key is refused: "+name, func(t *testing.T) {
			s := submission()
			s.IdempotencyKey += ":next"
			if err := refused(t, c, s); err.Code != Invalid {
				t.Errorf("got %+v", err)
			}
		})
	}
}
