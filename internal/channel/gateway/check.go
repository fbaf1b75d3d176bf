package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"golang.org/x/net/http/httpguts"
)

// placeholder stands for an action where a URL is checked.
const placeholder = "x-posthouse-x"

// Fault is what keeps a request from being sent.
type Fault struct {
	Key     string // "method", "url", "headers.NAME" as it was given, or "body"
	Problem string // in words that repeat nothing of what was given
	Detail  string // more of it, in words that may; often empty
	Mend    string // what to do, in words that repeat nothing either; may be empty
}

// Check says all that is wrong with the request that c describes: method, URL,
// headers and body. Where it says nothing, New takes them.
func Check(c Config) []Fault {
	orDefault(&c.Method, http.MethodPost)
	_, faults := compile(c)
	return faults
}

// safe are the values that need no escaping wherever they stand.
var safe = map[string]bool{".delivery.id": true, ".request.id": true, ".now_ms": true}

// The functions with which a value must end, by what it stands in.
var (
	forJSON = []string{"json"}
	forForm = []string{"urlquery"}
	forXML  = []string{"html"}
)

// escapers are those for a media type; nil where it has no rules.
func escapers(media string) []string {
	switch {
	case isJSON(media):
		return forJSON
	case media == "application/x-www-form-urlencoded":
		return forForm
	case strings.HasSuffix(media, "/xml"), strings.HasSuffix(media, "+xml"), media == "text/html":
		return forXML
	}
	return nil
}

func isJSON(media string) bool {
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// compiler gathers what is wrong with a request.
type compiler struct {
	request
	faults []Fault
}

func (c *compiler) fault(key, problem, mend string) {
	c.faults = append(c.faults, Fault{Key: key, Problem: problem, Mend: mend})
}

// compile checks the templates. A value in a JSON, form or XML body must be
// escaped for it, or a text could become further members; in a URL every value is
// escaped here.
func compile(cfg Config) (request, []Fault) {
	c := &compiler{request: request{method: cfg.Method}}
	if !httpguts.ValidHeaderFieldName(cfg.Method) {
		c.fault("method", "is not a method of HTTP", "write POST")
	}
	c.compileURL(cfg.URL)
	contentType := c.compileHeaders(cfg.Headers)
	if strings.TrimSpace(cfg.Body) != "" {
		c.compileBody(cfg.Body, contentType)
	}
	return c.request, c.faults
}

func (c *compiler) compileURL(source string) {
	t, _, ok := c.parse("url", source)
	if !ok {
		return
	}
	fixed, err := fill(t)
	if err == nil {
		err = checkURL(fixed)
	}
	if err != nil {
		c.fault("url", err.Error(), "")
		return
	}
	escapeAll(t)
	c.url = t
}

// compileHeaders returns the content type where it is given and sound.
func (c *compiler) compileHeaders(headers map[string]string) (contentType string) {
	seen := map[string]bool{}
	for _, given := range slices.Sorted(maps.Keys(headers)) {
		name, key := http.CanonicalHeaderKey(given), "headers."+given
		switch {
		case !httpguts.ValidHeaderFieldName(name) || name == "Host" || name == "Content-Length" || name == "Transfer-Encoding":
			c.fault(key, "has a name that cannot be set", "leave it out")
			continue
		case seen[name]:
			c.fault(key, "stands twice: capitals make no difference", "keep one")
			continue
		}
		seen[name] = true
		t, filled, ok := c.parse(key, headers[given])
		switch {
		case !ok:
			continue
		case !httpguts.ValidHeaderFieldValue(filled):
			c.fault(key, "holds a line break or another control character", "write it in one line")
			continue
		case name == "Content-Type":
			media, fixed := fixedMedia(t)
			if !fixed {
				c.fault(key, "must be a fixed text: by it is told how values in the body are escaped", "write one like application/json")
				continue
			}
			if media == "" {
				c.fault(key, "is not a content type", "write one like application/json")
				continue
			}
			contentType = media
		}
		c.headers = append(c.headers, header{name, t})
	}
	slices.SortFunc(c.headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return contentType
}

// fixedMedia returns the media type of a Content-Type in which nothing is put in.
func fixedMedia(t *template.Template) (media string, fixed bool) {
	var text strings.Builder
	for _, n := range t.Root.Nodes {
		part, ok := n.(*parse.TextNode)
		if !ok {
			return "", false
		}
		text.Write(part.Text)
	}
	media, _, _ = mime.ParseMediaType(text.String()) // with parameters that are none it still returns the type
	return media, true
}

func (c *compiler) compileBody(source, media string) {
	t, filled, ok := c.parse("body", source)
	if !ok {
		return
	}
	if media == "" {
		media = "text/plain"
		value := "text/plain; charset=utf-8"
		if beginsJSON(filled) || first(t.Root) == jsonText {
			media, value = "application/json", "application/json"
		}
		c.headers = append(c.headers, header{"Content-Type", template.Must(template.New("headers.Content-Type").Parse(value))})
	}
	if wanted := escapers(media); wanted != nil {
		if action := unescaped(t, wanted); action != "" {
			c.faults = append(c.faults, Fault{
				Key: "body", Problem: "has a value that is not escaped for " + media, Detail: action,
				Mend: "let each end with " + wanted[0] + ", as in {{.body | " + wanted[0] + "}}",
			})
			return
		}
	}
	c.json = isJSON(media)
	if c.json && !json.Valid([]byte(filled)) {
		c.fault("body", "is not JSON once values are put in", "json writes a value with its quotes, as in {\"to\": {{json .address}}}; where the body is not to be JSON, write another Content-Type")
		return
	}
	c.body = t
}

func beginsJSON(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && (text[0] == '{' || text[0] == '[')
}

// What a body begins with.
type beginning int

const (
	nothing   beginning = iota // so far
	otherText                  // or a value
	jsonText
)

// first says what a list of a template begins with, where that differs by its
// conditions with JSON if it may.
func first(list *parse.ListNode) beginning {
	if list == nil {
		return nothing
	}
	branches := func(b *parse.BranchNode) beginning {
		yes, no := first(b.List), first(b.ElseList)
		if yes != jsonText && no == nothing {
			return nothing
		}
		return max(yes, no)
	}
	for _, n := range list.Nodes {
		found := nothing
		switch n := n.(type) {
		case *parse.TextNode:
			found = beginningOf(string(n.Text))
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				continue
			}
			found = otherText
			if text, ok := n.Pipe.Cmds[0].Args[0].(*parse.StringNode); ok {
				found = beginningOf(text.Text)
			}
		case *parse.IfNode:
			found = branches(&n.BranchNode)
		case *parse.WithNode:
			found = branches(&n.BranchNode)
		case *parse.RangeNode:
			found = branches(&n.BranchNode)
		case *parse.TemplateNode:
			found = otherText // where it is JSON with the sample, that is told apart from here
		}
		if found != nothing {
			return found
		}
	}
	return nothing
}

func beginningOf(text string) beginning {
	switch {
	case strings.TrimSpace(text) == "":
		return nothing
	case beginsJSON(text):
		return jsonText
	}
	return otherText
}

// parse makes a template ready, and fills it with sample values.
func (c *compiler) parse(key, source string) (t *template.Template, filled string, ok bool) {
	const mend = "there are .address, .subject, .body, .biz_type, .locale, .delivery.id, .request.id, .recipient.id and .now_ms, " +
		"and the functions json, urlquery and hmac_sha256_base64"
	t, err := template.New(key).Option("missingkey=error").Funcs(functions).Parse(source)
	if err == nil {
		filled, err = execute(t, sample())
	}
	if err != nil {
		// The text may hold a credential, and the error quotes parts of it.
		_, detail, _ := strings.Cut(err.Error(), "template: "+key+":")
		c.faults = append(c.faults, Fault{Key: key, Problem: "does not work as a template", Detail: detail, Mend: mend})
		return nil, "", false
	}
	return t, filled, true
}

// fill replaces every action of a template by a placeholder.
func fill(t *template.Template) (string, error) {
	var b strings.Builder
	for _, n := range t.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			b.Write(n.Text)
		case *parse.ActionNode:
			b.WriteString(placeholder)
		default:
			return "", errors.New("only values may stand in it, no conditions or loops")
		}
	}
	return b.String(), nil
}

// checkURL refuses what no request can be sent to. It is given the URL with all
// actions replaced.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a valid URL") // the error would quote it
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("has no host")
	case strings.Contains(u.Host, placeholder) || u.User != nil:
		return errors.New("may have a value in its path and query only, and credentials belong in a header")
	case u.Fragment != "":
		return errors.New("has a fragment (#…), which is never sent")
	case climbs(u.EscapedPath()):
		return errors.New("has . or .. as a part of its path")
	}
	return nil
}

// escapeAll has every action of a URL end with an escape, whatever it does before.
func escapeAll(t *template.Template) {
	for _, n := range t.Root.Nodes {
		if a, ok := n.(*parse.ActionNode); ok && !endsWith(a.Pipe, forForm) {
			a.Pipe.Cmds = append(a.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: a.Pos,
				Args: []parse.Node{parse.NewIdentifier("escaped").SetPos(a.Pos).SetTree(t.Tree)},
			})
		}
	}
}

// unescaped returns the first action that writes a value without one of the
// functions at its end.
func unescaped(t *template.Template, wanted []string) (action string) {
	var walk func(n parse.Node)
	list := func(l *parse.ListNode) {
		if l != nil {
			for _, n := range l.Nodes {
				walk(n)
			}
		}
	}
	walk = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.ActionNode:
			if action == "" && len(n.Pipe.Decl) == 0 && !isSafe(n.Pipe) && !endsWith(n.Pipe, wanted) {
				action = n.String()
			}
		case *parse.IfNode:
			list(n.List)
			list(n.ElseList)
		case *parse.WithNode:
			list(n.List)
			list(n.ElseList)
		case *parse.RangeNode:
			list(n.List)
			list(n.ElseList)
		case *parse.ListNode:
			list(n)
		}
	}
	// The one that is carried out, and then those that it may call.
	all := t.Templates()
	slices.SortFunc(all, func(a, b *template.Template) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, each := range all {
		if each.Tree != nil {
			list(each.Root)
		}
	}
	return action
}

// isSafe: it stands in the template itself, or can hold nothing that means something elsewhere.
func isSafe(p *parse.PipeNode) bool {
	_, constant := p.Cmds[0].Args[0].(*parse.StringNode)
	return safe[p.String()] || constant && len(p.Cmds) == 1
}

func endsWith(p *parse.PipeNode, wanted []string) bool {
	last := p.Cmds[len(p.Cmds)-1]
	name, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && slices.Contains(wanted, name.Ident)
}
