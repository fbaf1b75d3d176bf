package migrate

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Migration is one numbered step of a schema.
type Migration struct {
	Version int
	Name    string
	Up      []string // statements, in order
	Down    []string
}

// separator stands alone on a line between two statements of a file. A
// semicolon will not do: triggers and views hold them.
const separator = "-- next"

var fileName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.(up|down)\.sql$`)

// Load reads the files NNNN_name.up.sql and NNNN_name.down.sql at the root of
// fsys, in the order of their numbers. Files with other names that end in .sql,
// a missing half, a number given twice or left out, and an empty file are
// errors: they are mistakes of whoever wrote them.
func Load(fsys fs.FS) ([]Migration, error) {
	files, err := fs.Glob(fsys, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	byVersion := map[int]*Migration{}
	for _, file := range files {
		parts := fileName.FindStringSubmatch(file)
		if parts == nil {
			return nil, fmt.Errorf("migration %s: not named NNNN_name.up.sql or NNNN_name.down.sql", file)
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		statements := split(string(text))
		if len(statements) == 0 {
			return nil, fmt.Errorf("migration %s: no statement", file)
		}
		version, _ := strconv.Atoi(parts[1]) // four digits
		m := byVersion[version]
		if m == nil {
			m = &Migration{Version: version, Name: parts[2]}
			byVersion[version] = m
		}
		if m.Name != parts[2] {
			return nil, fmt.Errorf("migration %04d: named both %s and %s", version, m.Name, parts[2])
		}
		if parts[3] == "up" {
			m.Up = statements
		} else {
			m.Down = statements
		}
	}
	all := make([]Migration, 0, len(byVersion))
	for _, m := range byVersion {
		if m.Up == nil || m.Down == nil {
			return nil, fmt.Errorf("migration %04d_%s: up or down is missing", m.Version, m.Name)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b Migration) int { return a.Version - b.Version })
	for i, m := range all {
		if m.Version != i+1 {
			return nil, fmt.Errorf("migration %04d is missing", i+1)
		}
	}
	return all, nil
}

func split(text string) []string {
	var statements []string
	var current strings.Builder
	flush := func() {
		if s := strings.TrimSpace(current.String()); s != "" {
			statements = append(statements, s)
		}
		current.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == separator {
			flush()
			continue
		}
		current.WriteString(line)
	}
	flush()
	return statements
}
