package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// A provider may have carried out a request whose answer is lost, so that the
// transport must not repeat it, whatever HTTP thinks of its method.
func TestWhatHasNoBodyIsNotRepeatedEither(t *testing.T) {
	key := map[string]string{"Idempotency-Key": "{{.delivery.id}}"}
	for name, c := range map[string]Config{
		"NC-10 GET":                     {Method: http.MethodGet},
		"NC-10 POST with a key":         {Headers: key},
		"NC-10 PUT with a key":          {Method: http.MethodPut, Headers: key},
		"NC-10 POST with a body":        {Headers: key, Body: `{"to": {{json .address}}}`},
		"NC-10 POST with a blank body":  {Headers: key, Body: " \n\t"},
		"NC-10 DELETE without anything": {Method: http.MethodDelete},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			var problem atomic.Value
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.Body == "" && (len(r.TransferEncoding) > 0 || r.ContentLength != 0) || r.Method == http.MethodPost && r.Header.Get("Content-Length") == "" {
					problem.Store("it came with another body")
				}
				if body, _ := io.ReadAll(r.Body); len(body) != int(r.ContentLength) {
					problem.Store("its length is wrong")
				}
				if requests.Add(1) == 1 {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					problem.Store(err.Error())
					return
				}
				_ = conn.Close() // it is accepted, and the answer is lost
			}))
			defer server.Close()
			c.URL = server.URL + "/send?to={{.address}}"
			s := newSender(t, c)
			if r := s.Send(t.Context(), delivery); r.Class != model.ClassSuccess {
				t.Fatalf("the first is %+v", r)
			}
			if r := s.Send(t.Context(), delivery); r.Class != model.ClassUncertain {
				t.Errorf("the second is %+v", r)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("the provider had %d requests for 2 deliveries", n)
			}
			if p := problem.Load(); p != nil {
				t.Error(p)
			}
		})
	}
}

func TestABlankBodyIsNone(t *testing.T) {
	for _, body := range []string{" ", "\n", "\t \r\n"} {
		if _, err := New(Config{URL: "https://example.com/", Body: body}); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
}

// What decides how values are escaped must not be a value itself, and is told
// apart however the template is written.
func TestWhatABodyIs(t *testing.T) {
	for name, c := range map[string]struct {
		contentType, body string
		refused           string // the key at fault
	}{
		"a content type out of a value":      {"{{.body}}", `{"b": "{{.body}}"}`, "headers.Content-Type"},
		"a content type out of a constant":   {`{{"text/plain"}}`, `{"b": "{{.body}}"}`, "headers.Content-Type"},
		"no content type":                    {"nonsense/", `{"b": "{{.body}}"}`, "headers.Content-Type"},
		"a brace out of a constant":          {"", `{{"{"}}"b": "{{.body}}"}`, "body"},
		"a brace out of a pipe":              {"", `{{"{" | printf "%s"}}"b": "{{.body}}"}`, "body"},
		"a brace after a condition":          {"", `{{if .subject}}{{end}}{"b": "{{.body}}"}`, "body"},
		"a brace in a condition":             {"", `{{if .subject}}{"b": "{{.body}}"}{{else}}{}{{end}}`, "body"},
		"a brace in the other branch":        {"", `{{if .subject}}x{{else}}{"b": "{{.body}}"}{{end}}`, "body"},
		"a brace after a variable":           {"", `{{$x := .body}}{"b": "{{$x}}"}`, "body"},
		"a brace in a template":              {"", `{{define "x"}}{"b": "{{.}}"}{{end}}{{template "x" .body}}`, "body"},
		"a list":                             {"", "\n\t[\"{{.body}}\"]", "body"},
		"capitals":                           {" Application/JSON ; charset=utf-8", `{"b": "{{.body}}"}`, "body"},
		"a parameter that is none":           {"application/json; charset", `{"b": "{{.body}}"}`, "body"},
		"another kind of JSON":               {"text/json", `{"b": "{{.body}}"}`, "body"},
		"a value in XML":                     {"text/xml", `<b>{{.body}}</b>`, "body"},
		"a value in SOAP":                    {"application/soap+xml", `<b>{{.body}}</b>`, "body"},
		"escaped, in quotes of its own":      {"", `{"b": "{{json .body}}"}`, "body"},
		"escaped, in quotes, in a list":      {"", `["{{json .body}}"]`, "body"},
		"JSON that never is":                 {"", `{"b": {{json .body}}`, "body"},
		"fine: JSON":                         {"", `{"b": {{json .body}}, "at": {{.now_ms}}}`, ""},
		"fine: begun by a constant":          {"", `{{"{"}}"b": {{json .body}}}`, ""},
		"fine: a text that begins so":        {"text/plain", `[{{.biz_type}}] {{.body}}`, ""},
		"fine: a text":                       {"", `{{.body}} [1]`, ""},
		"fine: XML":                          {"text/xml; charset=utf-8", `<b>{{html .body}}</b>`, ""},
		"fine: a signature":                  {"", `{"s": {{hmac_sha256_base64 "k" .body | json}}}`, ""},
		"fine: a form":                       {"application/x-www-form-urlencoded", `b={{.body | urlquery}}`, ""},
		"fine: JSON whose parts are chosen":  {"", `{"a": 1{{if .subject}}, "s": {{json .subject}}{{end}}}`, ""},
		"fine: a template with what is safe": {"", `{{define "x"}}{{json .}}{{end}}{"b": {{template "x" .body}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{URL: "https://example.com/", Body: c.body}
			if c.contentType != "" {
				cfg.Headers = map[string]string{"Content-Type": c.contentType}
			}
			faults := Check(cfg)
			at := slices.IndexFunc(faults, func(f Fault) bool { return f.Key == c.refused })
			if c.refused == "" && len(faults) > 0 || c.refused != "" && at < 0 {
				t.Errorf("got %+v", faults)
			}
		})
	}
}

func TestEveryFaultOfARequestIsTold(t *testing.T) {
	faults := Check(Config{
		Method: "PO ST", URL: "https://example.com/{{if .address}}x{{end}}", Body: `{"a": "{{.body}}"}`,
		Headers: map[string]string{"X-A": "{{.whereto}}", "x-b": "1", "X-B": "2", "X-C": "a\nb", "Host": "x"},
	})
	var keys []string
	for _, f := range faults {
		keys = append(keys, f.Key)
		if strings.Contains(f.Problem, "whereto") {
			t.Errorf("what was given is repeated: %s", f.Problem)
		}
	}
	if want := []string{"method", "url", "headers.Host", "headers.X-A", "headers.X-C", "headers.x-b", "body"}; !slices.Equal(keys, want) {
		t.Errorf("got %v, want %v", keys, want)
	}
}

func TestAnAddressDoesNotClimbOutOfItsPath(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer server.Close()
	s := newSender(t, Config{URL: server.URL + "/users/{{.address}}/send?to={{.address}}", Body: "{}"})
	for _, address := range []string{"..", ".", "../..", "a/..", `..\x`} {
		m := delivery
		m.Address = address
		if r := s.Send(t.Context(), m); r.Class != model.ClassPermanent || r.Code != "request" || requests > 0 {
			t.Errorf("%s: got %+v after %d requests", address, r, requests)
		}
	}
	m := delivery
	m.Address = "a..b"
	if r := s.Send(t.Context(), m); r.Class != model.ClassSuccess {
		t.Errorf("got %+v", r)
	}
	if _, err := New(Config{URL: "https://example.com/a/../{{.address}}"}); err == nil {
		t.Error("a URL that climbs itself was taken")
	}
}
