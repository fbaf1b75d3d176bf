package gateway

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
)

// A provider that answers with our credentials, as its code or as its id of the
// message, makes nothing of them known.
func TestCredentialsThatComeBackAreNotKept(t *testing.T) {
	secrets := []string{"tok_Kiefer", "query-Kiefer", "123456:path-Kiefer", "path-Kiefer", "user-Kiefer", "word-Kiefer", "body-Kiefer-77", "sign-Kiefer"}
	basic := base64.StdEncoding.EncodeToString([]byte("user-Kiefer:word-Kiefer"))
	for _, secret := range append(secrets, basic) {
		for _, form := range []string{`{"code":%q}`, `{"code":"Bearer-%s"}`, `{"sid":%q}`} {
			t.Run("NC-07 "+secret+" in "+form, func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if !strings.Contains(form, "sid") {
						w.WriteHeader(http.StatusBadRequest)
					}
					_, _ = fmt.Fprintf(w, form, secret)
				}))
				defer server.Close()
				c := Config{
					URL: server.URL + "/bot123456:path-Kiefer/send?key=query-Kiefer&to={{.address}}",
					Headers: map[string]string{"Authorization": "Bearer tok_Kiefer", "X-Login": "Basic " + basic,
						"X-Sign": `{{hmac_sha256_base64 "sign-Kiefer" .body}}`},
					Body: `{"key": "body-Kiefer-77", "text": {{json .body}}}`,
				}
				var err error
				if c.ProviderID, c.UsesBody, err = CompileProviderID("body.sid"); err != nil {
					t.Fatal(err)
				}
				s, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close() //nolint:errcheck // it has idle connections only
				r := s.Send(t.Context(), channel.Message{ID: uuid.New(), Address: "+4915112345678", Text: "hello"})
				if told := r.Code + " " + r.Text + " " + r.ProviderID; strings.Contains(told, "Kiefer") || strings.Contains(told, basic) {
					t.Errorf("the result tells it: %s", told)
				}
			})
		}
	}
}
