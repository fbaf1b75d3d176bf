package email

import (
	"fmt"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxDepth is how deep elements are followed: a page is not trusted.
const maxDepth = 200

// PlainText writes HTML as plain text, for readers that show no other: blocks
// become lines, links show where they lead, lists get their marks. Styles and
// scripts are left out.
func PlainText(page string) string {
	var w plainWriter
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		// It is nested deeper than the parser follows.
		w.tokens(page)
	} else {
		w.node(root, 0, false)
	}
	return strings.TrimSpace(w.b.String())
}

type plainWriter struct {
	b     strings.Builder
	lines int  // line ends at the end of what was written
	space bool // white space is owed
	some  bool // something was written
}

func (w *plainWriter) node(n *html.Node, depth int, pre bool) {
	if depth > maxDepth {
		return
	}
	switch n.Type {
	case html.TextNode:
		if pre {
			w.preformatted(n.Data)
		} else {
			w.text(n.Data)
		}
		return
	case html.CommentNode, html.DoctypeNode, html.RawNode:
		return
	case html.ElementNode, html.DocumentNode, html.ErrorNode:
	}
	before, after := around(n.DataAtom)
	w.breaks(before)
	switch n.DataAtom {
	case atom.Head, atom.Style, atom.Script, atom.Template, atom.Noscript, atom.Title, atom.Svg, atom.Iframe, atom.Object, atom.Select:
		return
	case atom.Br:
		w.newline()
		return
	case atom.Hr:
		w.word("----")
	case atom.Img:
		if alt := attribute(n, "alt"); alt != "" {
			w.text(alt)
		}
	case atom.Li:
		w.word(mark(n))
		w.space = true
	case atom.Td, atom.Th:
		w.space = true
	default:
	}
	begin := w.b.Len()
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		w.node(child, depth+1, pre || n.DataAtom == atom.Pre)
	}
	if n.DataAtom == atom.A {
		if to := attribute(n, "href"); leads(to) && !strings.Contains(w.b.String()[begin:], to) {
			w.space = w.b.Len() > begin
			w.word("<" + to + ">")
		}
	}
	w.breaks(after)
}

// tokens writes the text between the tags, however they are nested.
func (w *plainWriter) tokens(page string) {
	z := html.NewTokenizer(strings.NewReader(page))
	skip := 0
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.TextToken:
			if skip == 0 {
				w.text(html.UnescapeString(string(z.Text())))
			}
		case html.StartTagToken, html.EndTagToken:
			token := z.Token()
			switch token.DataAtom {
			case atom.Style, atom.Script, atom.Title:
				if skip = 0; token.Type == html.StartTagToken {
					skip = 1
				}
			default:
				if before, _ := around(token.DataAtom); before > 0 {
					w.breaks(1)
				}
			}
		case html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// around is how many line ends stand before and after an element, at least.
func around(a atom.Atom) (before, after int) {
	switch a {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Dl, atom.Blockquote, atom.Pre, atom.Table, atom.Hr, atom.Figure:
		return 2, 2
	case atom.Div, atom.Tr, atom.Li, atom.Dt, atom.Dd, atom.Section, atom.Article, atom.Header, atom.Footer, atom.Main, atom.Nav,
		atom.Aside, atom.Address, atom.Form, atom.Fieldset, atom.Body, atom.Center, atom.Figcaption, atom.Caption:
		return 1, 1
	default:
		return 0, 0
	}
}

// mark is what a list puts before an item.
func mark(item *html.Node) string {
	if item.Parent == nil || item.Parent.DataAtom != atom.Ol {
		return "-"
	}
	number := 1
	for n := item.PrevSibling; n != nil; n = n.PrevSibling {
		if n.DataAtom == atom.Li {
			number++
		}
	}
	return fmt.Sprintf("%d.", number)
}

func leads(to string) bool {
	for _, scheme := range []string{"https://", "http://"} {
		if len(to) > len(scheme) && strings.EqualFold(to[:len(scheme)], scheme) {
			return !strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '<' || r == '>' })
		}
	}
	return false
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}

// text writes with white space drawn together.
func (w *plainWriter) text(s string) {
	isSpace := func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\f' }
	for s != "" {
		i := strings.IndexFunc(s, isSpace)
		if i == 0 {
			w.space = true
			s = strings.TrimLeftFunc(s, isSpace)
			continue
		}
		if i < 0 {
			i = len(s)
		}
		w.word(s[:i])
		s = s[i:]
	}
}

func (w *plainWriter) preformatted(s string) {
	for i, line := range strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if i > 0 {
			w.newline()
		}
		if line != "" {
			w.word(line)
		}
	}
}

func (w *plainWriter) word(s string) {
	if w.space && w.some && w.lines == 0 {
		w.b.WriteByte(' ')
	}
	w.b.WriteString(strings.ReplaceAll(s, "\u00a0", " "))
	w.space, w.some, w.lines = false, true, 0
}

func (w *plainWriter) newline() {
	w.space = false
	if w.some && w.lines < 2 {
		w.b.WriteByte('\n')
		w.lines++
	}
}

func (w *plainWriter) breaks(n int) {
	for w.some && w.lines < n {
		w.newline()
	}
	if n > 0 {
		w.space = false
	}
}
