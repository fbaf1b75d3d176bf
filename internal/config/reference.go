package config

import (
	"reflect"
)

// Entry is one key as the reference and the example show it. Its meaning is the comment of the field Go.
type Entry struct {
	Path     string // as in sources.<name>.consume.timeout
	Go       string // the field that it fills, as in Consume.Timeout
	Depth    int    // how many groups it is in
	Name     string // the last part of Path
	Group    bool   // whether it holds other keys, which follow
	Table    bool   // whether those have names that the user chooses
	List     bool   // whether there may be many such groups
	Type     string // what may stand there, in words; empty for a group
	Limits   string // the bounds, in words; may be empty
	Default  string // as written in YAML; empty where Required or where there is none
	Example  string // a value, as written in YAML, for a key whose default says little
	Required bool
}

// Reference returns every key in the order of the file.
func Reference() []Entry {
	return entriesOf(nil, reflect.TypeFor[Config](), "", 0)
}

func entriesOf(out []Entry, t reflect.Type, path string, depth int) []Entry {
	for _, k := range keysOf(t) {
		here := join(path, k.name)
		e := Entry{
			Path: here, Go: t.Name() + "." + k.field.Name, Depth: depth, Name: k.name,
			Group: k.elem != nil, Table: k.kind == kindTable, List: k.list && k.elem != nil, Limits: k.limits(), Example: k.example, Required: k.required != "",
		}
		if k.hasDef {
			e.Default = k.written(k.def)
		}
		if !e.Group {
			e.Type = k.wants()
			out = append(out, e)
			continue
		}
		out = append(out, e)
		below, deeper := here, depth+1
		switch {
		case k.kind == kindTable:
			below, deeper = join(here, "<name>"), depth+2
		case e.List:
			below = here + "[]"
		}
		out = entriesOf(out, k.elem, below, deeper)
	}
	return out
}

// written writes a default as YAML has it.
func (k *key) written(def string) string {
	switch {
	case k.list:
		return "[" + def + "]"
	case k.texts:
		return "{}"
	case def == "":
		return `""`
	default:
		return def
	}
}
