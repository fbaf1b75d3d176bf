// Package template turns variables into what people read. It answers two
// questions: do these variables fit this template, and what does the template
// come to with them? It knows no store, no channel and no address, and does no
// I/O but for reading the folder that it is handed.
//
// # A folder of templates
//
//	templates/
//	  approval_todo/                  the template's code
//	    template.yaml                 its variables
//	    in_app.zh-CN.md               Markdown; the first line "# …" is the title
//	    email.zh-CN.subject.txt       one line
//	    email.zh-CN.html              escaped for where a value stands
//	    email.zh-CN.txt               may be left out: whoever sends makes it from the HTML
//	    text.zh-CN.txt                SMS and chat
//
// A file without a locale is for default_locale. template.yaml holds description,
// default_locale, title (of the in-app message, one text or one for each locale,
// where the Markdown is not to begin with it) and variables: a JSON Schema
// (2020-12) in which an object that declares properties takes no others unless it
// says additionalProperties, formats are checked, references stay inside, and
// "sensitive: true", at any depth, keeps a value out of everything but the message
// itself:
//
//	description: Somebody has to decide.
//	default_locale: en
//	variables:
//	  required: [title, code]
//	  properties:
//	    title: {type: string, maxLength: 200}
//	    code:  {type: string, sensitive: true}
//
// # What is promised
//
//   - [Load] tells all problems at once, each with its file and line. [Lint] tells
//     what should be better, too.
//   - [Template.Check] names what is missing, null, not declared or of another form,
//     and never says a value. Numbers are exact decimals, and are printed as they
//     came: 1.10 and 9007199254740993 stay that.
//   - A value is data: what looks like a template prints as it is. In HTML it is
//     escaped for where it stands, once; in a subject, a text and the in-app
//     Markdown it is not changed at all ({{md .name}} escapes it for Markdown).
//     Markdown is rendered by whoever shows it, who must take it for untrusted.
//   - What becomes a header, a subject or a title, is one line: a value with a line
//     break or another control character is refused by name. A byte order mark at
//     the start and characters that turn the direction of the text (U+202A to
//     U+202E, U+2066 to U+2069) are left out. A tab and U+0085 may stand.
//   - Nothing absent or null is ever printed; it is refused by name.
//   - In-app, a sensitive value is [Mask].
//   - Rendering ends: what it makes, the steps that it takes and the text that its
//     functions go through are bounded, and a template that calls itself is refused
//     when it is loaded.
//
// # The language
//
// It is that of Go's text/template and html/template, with these functions alone:
//
//	and, or, not              as usual; a number that is 0 counts as false
//	eq, ne, lt, le, gt, ge    numbers by their exact value, texts by their bytes
//	default OTHER V           V, or OTHER where V is absent, null or empty
//	len V                     characters of a text, items of a list
//	index V KEY …             an item or a member, or nothing
//	upper S, lower S, trim S
//	truncate N S              at most N characters, the last one an ellipsis
//	join SEPARATOR LIST
//	json V                    as JSON
//	urlencode S               for a part of a link that is put together in a text
//	md S                      escaped for Markdown
//	date LAYOUT [OFFSET] T    a date-time or date, with a layout of Go's such as
//	                          "2006-01-02 15:04" and an offset such as "+08:00"
//
// A variable that is declared and not required may be tested: {{with .note}}, and of
// a number that may be 0, {{if ne .limit nil}}. To print it without a test is a
// warning, since without it nothing can be sent. Comments in HTML are left out, also
// those that are conditions for some programs.
package template
