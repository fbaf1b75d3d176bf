package samples_test

import (
	"testing"

	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/template/samples"
)

func TestTheSamplesAreInOrder(t *testing.T) {
	for _, p := range template.Lint(samples.FS()) {
		t.Error(p)
	}
	set, _ := template.Load(samples.FS())
	if set == nil {
		t.Fatal("they cannot be loaded")
	}
	for _, code := range set.Codes() {
		for _, locale := range []string{"en", "zh-CN"} {
			p, err := template.Preview(samples.FS(), code, locale, nil)
			if err != nil {
				t.Error(err)
			}
			for _, kind := range p.Kinds {
				if kind.Locale != locale {
					t.Errorf("%s: %s in %s is of %s", code, kind.Kind, locale, kind.Locale)
				}
				t.Logf("%s %s %s: %s\n%s", code, kind.Kind, locale, kind.Subject, kind.Text)
			}
		}
	}
}
