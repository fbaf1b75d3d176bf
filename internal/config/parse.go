package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds the file, in bytes. A source takes some 500 of them.
const maxFile = 1 << 20

// ParseParams is what a configuration is read from.
type ParseParams struct {
	// Data is the text of the file. Load reads it from File instead.
	Data []byte

	// File is the file's name as problems show it.
	File string

	// LookupEnv looks up an environment variable; os.LookupEnv if nil.
	LookupEnv func(name string) (value string, set bool)

	// ReadFile reads what file:/path names; os.ReadFile if nil.
	ReadFile func(path string) ([]byte, error)

	// CheckExpression compiles an accept expression and says what is wrong with it. If nil, they are not tested.
	CheckExpression func(expression string) error

	// CheckKey does the same for an expression that yields a key.
	CheckKey func(expression string) error

	// CheckValue does the same for an expression over a push that yields anything.
	CheckValue func(expression string) error

	// CheckPolicy does the same for a policy's condition, and PolicyKinds says which kinds of addresses one names.
	CheckPolicy func(expression string) error
	PolicyKinds func(expression string) []string

	// CheckAnswer does the same for a condition over a provider's answer, and CheckAnswerValue for an expression over it
	// that yields a text.
	CheckAnswer, CheckAnswerValue func(expression string) error

	// CheckRequest says all that is wrong with a provider's request. If nil, its templates are not tested.
	CheckRequest func(method, url string, headers map[string]string, body string) []RequestFault
}

// Load reads the file that the parameters name, and then does what [Parse] does.
func Load(p ParseParams) (c *Config, problems, warnings []Problem) {
	read := p.ReadFile
	if read == nil {
		read = os.ReadFile
	}
	data, err := read(p.File)
	if err != nil {
		message := "cannot be read"
		if errors.Is(err, fs.ErrNotExist) {
			message = "does not exist"
		} else if errors.Is(err, fs.ErrPermission) {
			message = "may not be read by this user"
		}
		return nil, []Problem{{File: p.File, Message: message, Fix: "name the file with --config, or let posthouse init write one"}}, nil
	}
	p.Data = data
	return Parse(p)
}

// Parse reads a configuration. It returns either a Config that is sound or every problem there is, in the order of the
// file. Warnings come either way and stop nothing.
//
// In any text, ${NAME} is replaced by that environment variable after the YAML was parsed, so that no value can add
// keys; $$ stands for one $. Secrets and the store's URL may be file:/path instead. What came from there never appears
// in a problem.
func Parse(p ParseParams) (c *Config, problems, warnings []Problem) {
	if p.LookupEnv == nil {
		p.LookupEnv = os.LookupEnv
	}
	if p.ReadFile == nil {
		p.ReadFile = os.ReadFile
	}
	d := &decoder{params: p, at: map[string]position{}, failed: map[string]bool{}, read: map[string]text{}, aliases: map[*ast.AliasNode]ast.Node{}}
	c = &Config{}
	setDefaults(reflect.ValueOf(c).Elem())

	if root, ok := d.tree(p.Data); ok {
		d.group("", root, reflect.ValueOf(c).Elem())
		d.pairs(c)
	}
	c.Keys = d.keys(len(c.Channels) > 0)

	problems, warnings = sortProblems(d.errors), sortProblems(d.warnings)
	if len(problems) > 0 {
		return nil, problems, warnings
	}
	return c, nil, warnings
}

// tree parses the text. Not ok means that there is nothing to go on with, and why has been reported.
func (d *decoder) tree(data []byte) (root ast.Node, ok bool) {
	if len(data) > maxFile {
		d.failAt(position{1, 1}, "", "the file is larger than "+Bytes(maxFile).String(), "")
		return nil, false
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if at, bad := firstBadByte(data); bad {
		d.failAt(at, "", "this is not text in UTF-8", "save the file as UTF-8")
		return nil, false
	}
	file, err := parseYAML(data)
	if err != nil {
		at, message := syntaxError(err)
		d.failAt(at, "", message, `look at the indentation, and put a text that holds : # { } [ ] or ${…} in "quotes"`)
		return nil, false
	}
	var documents []ast.Node
	for _, document := range file.Docs {
		if _, directive := document.Body.(*ast.DirectiveNode); document.Body != nil && !directive {
			documents = append(documents, document.Body)
		}
	}
	if len(documents) == 0 {
		return nil, true
	}
	if len(documents) > 1 {
		d.failAt(place(documents[1]), "", "a second document begins here", "keep one, without --- between")
	}
	d.bindAliases(documents[0])
	return documents[0], true
}

// errYAML is what a parser that gave up without an error of its own comes to.
var errYAML = errors.New("cannot be read as YAML")

// parseYAML keeps a panic of the parser, which is not ours and reads what anyone wrote, from ending the process.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if recover() != nil {
			file, err = nil, errYAML
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// syntaxError takes place and words from the parser's error. Its words may end with a piece of the file in double
// quotes, which is left out: it may be part of a secret.
func syntaxError(err error) (position, string) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		return position{1, 1}, errYAML.Error()
	}
	message, _, _ := strings.Cut(strings.ReplaceAll(syntax.GetMessage(), "'\t'", "tab"), `"`)
	return tokenPlace(syntax.GetToken()), "this is not YAML: " + strings.TrimRight(cut(message, 200), ": ")
}

// firstBadByte finds what no YAML parser should be given: what is not UTF-8, or a NUL.
func firstBadByte(data []byte) (position, bool) {
	at := position{1, 1}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1, r == 0:
			return at, true
		case r == '\n':
			at = position{at.line + 1, 1}
		default:
			at.column++
		}
		data = data[size:]
	}
	return position{}, false
}

// keys reads the key ring from the environment; an empty variable counts as none.
func (d *decoder) keys(needed bool) *KeyRing {
	value, set := d.params.LookupEnv(KeysVariable)
	if !set || strings.TrimSpace(value) == "" {
		if needed {
			d.errors = append(d.errors, Problem{File: Environment, Path: KeysVariable, Message: "is not set, but there are channels: addresses and sensitive variables are kept encrypted",
				Fix: `set it, as in POSTHOUSE_KEYS="k1:$(head -c 32 /dev/urandom | base64)", and keep it: what is kept cannot be read without it`})
		}
		return nil
	}
	ring, err := ParseKeys(value)
	if err != nil {
		d.errors = append(d.errors, Problem{File: Environment, Path: KeysVariable, Message: err.Error(),
			Fix: "write id:base64,id:base64,… with the current one first"})
		return nil
	}
	return ring
}
