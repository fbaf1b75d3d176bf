// Package samples holds templates to begin with: what the development server
// shows, and what the documentation explains.
package samples

import (
	"embed"
	"io/fs"
)

//go:embed templates
var files embed.FS

// FS returns the folder of templates.
func FS() fs.FS {
	sub, err := fs.Sub(files, "templates")
	if err != nil { // not reached: the name is a constant
		return files
	}
	return sub
}
