package expression

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// push is a JSON body of about 1 KiB, of the kind that senders push.
func push() []byte {
	var b strings.Builder
	b.WriteString(`{"msgType":1008,"id":"018f9c3e-7c5e-7a2b-9d3e-2f6f0a1b2c3d","created":"2026-01-02T03:04:05Z","data":{"orders":[`)
	for i := 0; b.Len() < 960; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"A-%04d","qty":%d,"price":%d.%02d,"note":null,"ok":true}`, i, i*3, i*7, i)
	}
	b.WriteString(`]},"source":"erp"}`)
	return []byte(b.String())
}

func BenchmarkEval(b *testing.B) {
	body := push()
	header := http.Header{"X-Event": {"order"}}
	for _, source := range []string{
		`body.msgType == 1008`,
		`body.source == "erp"`,
		`body.msgType in [1007, 1008, 1009]`,
		`headers["X-Event"] == "order"`,
		`headers["X-Event"] == "order" && body.msgType == 1008 && body.source == "erp"`,
		`any(body.data.orders, .qty > 20 && .price * .qty > 0.5)`,
	} {
		b.Run(source, func(b *testing.B) {
			p, err := Compile(source)
			if err != nil {
				b.Fatal(err)
			}
			in := Input{Body: body, Header: header, Size: int64(len(body))}
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := p.Eval(in); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
	b.Run("not evaluated: a string for a number", func(b *testing.B) {
		p, err := Compile(`body.source == 1008`)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Eval(Input{Body: body}); err == nil {
				b.Fatal("no error")
			}
		}
	})
}

// BenchmarkDecode is what reading the whole body into maps would cost, before any expression is evaluated.
func BenchmarkDecode(b *testing.B) {
	body := push()
	b.ReportAllocs()
	for b.Loop() {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			b.Fatal(err)
		}
	}
}
