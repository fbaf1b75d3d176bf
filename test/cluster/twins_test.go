package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/posthouse/posthouse/test/internal/running"
)

// events are messages with a sender's key: n tells the copy.
var events = running.Writing{ContentType: "application/json", Number: func(body []byte) (int, error) {
	var e struct {
		N int `json:"n"`
	}
	err := json.Unmarshal(body, &e)
	return e.N, err
}}

// Copies that come at the same time, over two instances, make one message.
func TestTwinsMakeOneMessage(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-24", engines, runTwins)
}

func runTwins(t *testing.T, e running.Engine) {
	target := running.NewTarget(t, events, nil)
	source := func(name, key string) running.Source {
		return running.Source{Name: name, Order: "parallel", Target: target.URL, MaxRetry: 5, Dedup: fmt.Sprintf("{key: %q, window: 8d}", key)}
	}
	cfg := running.Config{Store: e.Fresh(t), Sources: []running.Source{
		source("shop", "body.id"), source("bank", "body.id"), source("bytes", "body.id"), source("parts", "[body.a, body.b]"), source("flush", "body.id"),
	}}
	c := launch(t, 2, cfg)
	// together pushes all of them at the same time, over all doors.
	together := func(t *testing.T, source string, bodies ...string) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(bodies)}}
		defer client.CloseIdleConnections()
		answers := make([]running.Answer, len(bodies))
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for i, body := range bodies {
			wg.Go(func() {
				<-begin
				answers[i] = running.Post(context.Background(), client, c.all[i%2].Door, source, "application/json", []byte(body))
			})
		}
		close(begin)
		wg.Wait()
		for _, a := range answers {
			if !a.Acked() {
				t.Errorf("a push to %s was answered %d: %v", source, a.Status, a.Err)
			}
		}
	}
	copies := func(n int, rest string) (bodies []string) {
		for i := range n {
			bodies = append(bodies, fmt.Sprintf(`{"n":%d,%s}`, i, rest))
		}
		return bodies
	}
	want := map[string]int{}
	t.Run("IN-24 a hundred copies at once over two instances", func(t *testing.T) {
		for i := range scale(5, 100) {
			together(t, "shop", copies(100, fmt.Sprintf(`"id":"x%d"`, i))...)
			want["shop"]++
		}
	})
	t.Run("IN-24 the same key on another source", func(t *testing.T) {
		together(t, "bank", copies(1, `"id":"x0"`)...)
		want["bank"]++
	})
	t.Run("IN-24 keys are compared byte for byte", func(t *testing.T) {
		for _, id := range []string{"A:e", "a:É", "a:e", "A:É", "a:E\u0301", "A:e "} {
			together(t, "bytes", copies(4, fmt.Sprintf(`"id":%q`, id))...)
			want["bytes"]++
		}
	})
	t.Run("IN-24 parts that join to the same text", func(t *testing.T) {
		for _, parts := range []string{`"a":"ab","b":"c"`, `"a":"a","b":"bc"`, `"a":"","b":"abc"`, `"a":"a,b","b":"c"`, `"a":"a","b":"b,c"`} {
			together(t, "parts", copies(4, parts)...)
			want["parts"]++
		}
	})
	t.Run("IN-24 three copies among 61 others", func(t *testing.T) {
		bodies := copies(3, `"id":"copy"`)
		for i := range 61 {
			bodies = append(bodies, fmt.Sprintf(`{"n":%d,"id":"other %d"}`, i, i))
		}
		together(t, "flush", bodies...)
		want["flush"] = 62
	})
	c.all[0].WaitHandled()
	rows, executions := map[string]int{}, map[string]int{}
	c.inspect(func(db *running.Database) error {
		all, err := db.Messages(context.Background(), events)
		for _, k := range all {
			rows[k.Source]++
		}
		return err
	})
	for _, x := range target.Record() {
		executions[x.Source]++
	}
	t.Run("IN-24 one row and one execution for each key", func(t *testing.T) {
		for source, n := range want {
			if rows[source] != n || executions[source] != n {
				t.Errorf("source %s has %d rows and %d executions, want %d", source, rows[source], executions[source], n)
			}
		}
	})
	c.stop()
}
