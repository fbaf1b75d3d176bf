package expression

import (
	"strings"
	"testing"
)

const document = `{"biz_type":"device.alarm","priority":"high","tags":["night"],"recipient":{"id":"u1","email":true},"headers":{"retry-after":"120"}}`

var documentNames = []string{"biz_type", "priority", "tags", "recipient", "headers", "locale"}

func TestADocumentsNamesAreItsMembers(t *testing.T) {
	for source, want := range map[string]string{
		`biz_type == "device.alarm" && priority == "high"`: "true",
		`"night" in tags`:                         "true",
		`recipient.email && recipient.id != "u2"`: "true",
		`headers["retry-after"] == "120"`:         "true",
		`let size = len(tags); size == 2`:         "false",
		`locale == "fr"`:                          "cannot be evaluated: locale is missing",
		`recipient.id > 1`:                        "cannot be evaluated: ",
	} {
		t.Run(source, func(t *testing.T) {
			p, err := CompileOver(source, documentNames...)
			if err != nil {
				t.Fatal(err)
			}
			holds, err := p.Eval(Input{Body: []byte(document)})
			got := map[bool]string{true: "true", false: "false"}[holds]
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestADocumentHasNoOtherNames(t *testing.T) {
	for source, want := range map[string]string{
		`body.a == 1`:                    `1:1: unknown name "body"; known are biz_type, headers, locale, priority, recipient, tags`,
		`query["a"] == "1"`:              `1:1: unknown name "query"; known are `,
		`let tags = 1; tags == 1`:        `tags cannot be declared anew`,
		`biz_type + "x"`:                 `it must yield true or false`,
		`biz_typ == "device.alarm" && 1`: `unknown name "biz_typ"`,
	} {
		if _, err := CompileOver(source, documentNames...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
}

func TestAValueIsWrittenAsJSON(t *testing.T) {
	const body = `{"issue":{"title":"a \"b\" <c>","number":9007199254740993,"rate":1.50,"labels":["x",{"y":null}],"user":null},"n":0.1}`
	for source, want := range map[string]string{
		`body.issue.title`:                         `"a \"b\" <c>"`,
		`body.issue.number`:                        `9007199254740993`,
		`body.issue.rate`:                          `1.50`,
		`body.n + 0.2`:                             `0.3`,
		`body.issue.labels`:                        `["x",{"y":null}]`,
		`[body.n, "a<b", true, body.issue.labels]`: `[0.1,"a<b",true,["x",{"y":null}]]`,
		`body.issue.user`:                          `null`,
		`body.issue?.milestone?.title`:             ``,
		`"issue-" + string(body.issue.number)`:     `"issue-9007199254740993"`,
		`headers["X-Event"]`:                       `"issues"`,
		`body.issue`:                               `{"title":"a \"b\" <c>","number":9007199254740993,"rate":1.50,"labels":["x",{"y":null}],"user":null}`,
		`"it"`:                                     `"it"`,
		`body.issue.id`:                            `cannot be evaluated: body.issue.id is missing`,
	} {
		t.Run(source, func(t *testing.T) {
			e, err := CompileValue(source)
			if err != nil {
				t.Fatal(err)
			}
			value, err := e.Eval(Input{Body: []byte(body), Header: map[string][]string{"X-Event": {"issues"}}})
			got := string(value)
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestAValueOfADocument(t *testing.T) {
	e, err := CompileValueOver("recipient.id", documentNames...)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Eval(Input{Body: []byte(document)}); err != nil || string(got) != `"u1"` {
		t.Errorf("got %s, %v", got, err)
	}
}
