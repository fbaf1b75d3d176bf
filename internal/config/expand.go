package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// text is a scalar as it stands in the file and as it is after what it refers to was put in.
type text struct {
	raw     string // as written
	value   string // expanded
	outside bool   // whether any of the value came from the environment or a file: then it is never shown
}

// complaint is a problem of a value that does not know yet where it stands.
type complaint struct {
	message, fix string
}

// expand puts the environment's values in for each ${NAME}. $$ stands for one $, so that $${NAME} is not a reference;
// a $ before anything else stands for itself. What comes from the environment is not looked at again.
func expand(raw string, lookup func(string) (string, bool)) (text, []complaint) {
	out := text{raw: raw}
	var complaints []complaint
	var b strings.Builder
	rest := raw
	for {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			break
		}
		rest = after
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			rest = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed || !variableName.MatchString(name) {
				complaints = append(complaints, complaint{
					message: "${ is not followed by a name and }",
					fix:     "write ${NAME} with letters, digits and _ alone, or $${ for the text ${",
				})
				rest = rest[1:]
				continue
			}
			rest = after
			out.outside = true
			value, set := lookup(name)
			if !set {
				complaints = append(complaints, complaint{
					message: "the environment variable " + name + " is not set",
					fix:     "set it, or write $${" + name + "} for the text itself",
				})
			}
			b.WriteString(value)
		default:
			b.WriteByte('$')
		}
	}
	out.value = b.String()
	return out, complaints
}

// filePrefix begins a secret that is read from a file.
const filePrefix = "file:"

// resolveSecret is expand, and reads the file where the text as written begins with file:. One newline at the file's
// end is dropped. Only a text that was written so names a file: an environment's value that looks the same does not.
func resolveSecret(raw string, lookup func(string) (string, bool), read func(string) ([]byte, error)) (text, []complaint) {
	out, complaints := expand(raw, lookup)
	path, isFile := strings.CutPrefix(out.value, filePrefix)
	if !isFile || !strings.HasPrefix(raw, filePrefix) || len(complaints) > 0 {
		return out, complaints
	}
	out.outside = true
	if !filepath.IsAbs(path) {
		return out, []complaint{{message: "file: is not followed by an absolute path", fix: "write file:/path"}}
	}
	data, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, []complaint{{message: "the file that it names does not exist"}}
	case errors.Is(err, fs.ErrPermission):
		return out, []complaint{{message: "the file that it names may not be read by this user"}}
	case err != nil:
		return out, []complaint{{message: "the file that it names cannot be read"}}
	}
	out.value = string(data)
	if line, ended := strings.CutSuffix(out.value, "\n"); ended {
		out.value = strings.TrimSuffix(line, "\r")
	}
	return out, nil
}
