package email

import (
	"strings"
	"testing"
)

func TestPlainTextOfHTML(t *testing.T) {
	for page, want := range map[string]string{
		"<p>Hello,\n   <b>Zoe</b> &amp; Tom</p><p>Bye</p>":                                               "Hello, Zoe & Tom\n\nBye",
		"<html><head><title>T</title><style>p{}</style></head><body>x<script>y()</script></body></html>": "x",
		`<a href="https://example.com/a?b=1&amp;c=2">Open it</a>.`:                                       "Open it <https://example.com/a?b=1&c=2>.",
		`<a href="https://example.com/">https://example.com/</a>`:                                        "https://example.com/",
		`<a href="javascript:x()">no</a>`:                                                                "no",
		"<ul><li>one</li><li>two<br>more</li></ul><ol><li>a<li>b</ol>":                                   "- one\n- two\nmore\n\n1. a\n2. b",
		"<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>":                                "a b\nc",
		`<img src=x onerror=alert(1) alt="A chart"> <h1>T</h1>text`:                                      "A chart\n\nT\n\ntext",
		"<pre>  x\n   y</pre>":                 "x\n   y",
		"line&nbsp;one":                        "line one",
		"":                                     "",
		strings.Repeat("<div>", 2000) + "deep": "deep",
	} {
		if got := PlainText(page); got != want {
			t.Errorf("%.60q: got %q, want %q", page, got, want)
		}
	}
}
