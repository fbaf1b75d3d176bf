package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// kind is what may stand in the file for a key.
type kind int

const (
	kindText     kind = iota // string and types made of it
	kindSecret               // Secret: as text, and file:/path is read
	kindBool                 // bool
	kindInt                  // int
	kindDuration             // time.Duration
	kindSize                 // Bytes
	kindRate                 // Rate
	kindGroup                // struct, or a pointer to one that is nil where the key is absent
	kindTable                // map[string]struct: names that the user chooses
)

// wants says, in words for an error and for the reference, what stands for a kind.
func (k kind) wants() string {
	return [...]string{"text", "text", "true or false", "a whole number", "a duration such as 30s, 5m or 8d",
		"a size such as 512KiB, 1MiB or 1048576", "a rate such as 50/s, 600/m or 1000/h", "a mapping of keys", "a mapping of names"}[k]
}

var (
	secretType   = reflect.TypeFor[Secret]()
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	rateType     = reflect.TypeFor[Rate]()
	channelType  = reflect.TypeFor[Channel]()
)

// key is what the struct's tags say about one key of the file.
type key struct {
	name     string       // as in the file
	owner    reflect.Type // the struct that declares it
	field    reflect.StructField
	kind     kind // of one element, where list
	list     bool
	texts    bool         // a mapping of names to such values
	elem     reflect.Type // the group's or the table's struct type
	def      string
	hasDef   bool
	required string // how to write it; empty where it may be left out
	unless   string // the key beside it in whose presence it may be left out
	min, max string
	oneOf    []string
	minItems int
	maxItems int
	short    string // the key of a group for which a plain value stands
	check    string
	names    string // the test of a mapping's names
	example  string
}

// keysOf returns the keys that a struct of the configuration declares, in its order. A tag that makes no sense is a
// mistake in this package, met by its first test: it panics.
func keysOf(t reflect.Type) []key {
	var keys []key
	for _, field := range reflect.VisibleFields(t) {
		if name := field.Tag.Get("yaml"); name != "-" {
			keys = append(keys, newKey(t, field, name))
		}
	}
	return keys
}

func newKey(owner reflect.Type, field reflect.StructField, name string) key {
	k := key{
		name: name, owner: owner, field: field,
		required: field.Tag.Get("required"), unless: field.Tag.Get("unless"), min: field.Tag.Get("min"), max: field.Tag.Get("max"),
		oneOf: strings.Fields(field.Tag.Get("oneof")), short: field.Tag.Get("short"), check: field.Tag.Get("check"), names: field.Tag.Get("names"), example: field.Tag.Get("example"),
	}
	k.def, k.hasDef = field.Tag.Lookup("default")
	t := field.Type
	k.list = t.Kind() == reflect.Slice
	k.texts = t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String
	if k.list || k.texts {
		t = t.Elem()
		low, high, _ := strings.Cut(field.Tag.Get("items"), " ")
		k.minItems, k.maxItems = mustInt(low), mustInt(high)
	}
	switch {
	case t == secretType:
		k.kind = kindSecret
	case t == durationType:
		k.kind = kindDuration
	case t == bytesType:
		k.kind = kindSize
	case t == rateType:
		k.kind = kindRate
	case t.Kind() == reflect.String:
		k.kind = kindText
	case t.Kind() == reflect.Bool:
		k.kind = kindBool
	case t.Kind() == reflect.Int:
		k.kind = kindInt
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		k.kind, k.elem = kindTable, t.Elem()
	case t.Kind() == reflect.Pointer:
		k.kind, k.elem = kindGroup, t.Elem()
	case t.Kind() == reflect.Struct:
		k.kind, k.elem = kindGroup, t
	default:
		panic(fmt.Sprintf("config: %s.%s is of a type that no key can have: %s", owner, field.Name, t))
	}
	return k
}

func mustInt(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("config: the tag value %q is not a number", s))
	}
	return n
}

// find returns the key of that name, or nil.
func find(keys []key, name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// wants says what may stand for this key.
func (k *key) wants() string {
	what := k.kind.wants()
	if len(k.oneOf) > 0 {
		what = "one of " + strings.Join(k.oneOf, ", ")
		if len(k.oneOf) == 1 {
			what = k.oneOf[0]
		}
	}
	switch {
	case k.list:
		return "a list, each of it " + what
	case k.texts:
		return "a mapping of names to " + what
	}
	return what
}

// setDefaults gives every field of a struct that v is the default that its tag states, groups included.
func setDefaults(v reflect.Value) {
	for _, k := range keysOf(v.Type()) {
		field := v.FieldByIndex(k.field.Index)
		switch {
		case k.kind == kindGroup && field.Kind() == reflect.Struct:
			setDefaults(field)
		case k.list && k.def != "":
			for item := range strings.SplitSeq(k.def, ",") {
				one := reflect.New(field.Type().Elem()).Elem()
				k.mustSet(one, strings.TrimSpace(item))
				field.Set(reflect.Append(field, one))
			}
		case k.hasDef && !k.list && !k.texts:
			k.mustSet(field, k.def)
		}
	}
}

func (k *key) mustSet(v reflect.Value, s string) {
	if err := k.set(v, s); err != nil {
		panic(fmt.Sprintf("config: the tag of %s.%s: %v", k.owner, k.field.Name, err))
	}
}

// set reads a scalar's text into v, as the key's kind has it. The error never repeats the text.
func (k *key) set(v reflect.Value, s string) error {
	switch k.kind {
	case kindText, kindSecret:
		v.SetString(s)
	case kindBool:
		switch strings.ToLower(s) {
		case "true":
			v.SetBool(true)
		case "false":
			v.SetBool(false)
		default:
			return fmt.Errorf("not %s", k.kind.wants())
		}
	case kindInt:
		n, err := strconv.ParseInt(s, 10, strconv.IntSize)
		if err != nil {
			return fmt.Errorf("not %s", k.kind.wants())
		}
		v.SetInt(n)
	case kindDuration:
		d, err := parseDuration(s)
		if err != nil {
			return err
		}
		v.SetInt(int64(d))
	case kindRate:
		r, err := ParseRate(s)
		if err != nil {
			return err
		}
		v.SetFloat(float64(r))
	case kindSize:
		n, err := ParseBytes(s)
		if err != nil {
			return err
		}
		v.SetInt(int64(n))
	default:
		panic("config: a group has no text")
	}
	return nil
}

// outOfRange tells whether a value is below the key's least or above its most, and says the bound.
func (k *key) outOfRange(v reflect.Value) (message string, out bool) {
	bound := func(s string) int64 {
		limit := reflect.New(v.Type()).Elem()
		k.mustSet(limit, s)
		return limit.Int()
	}
	if k.min != "" && v.Int() < bound(k.min) {
		return "is below the minimum of " + k.min, true
	}
	if k.max != "" && v.Int() > bound(k.max) {
		return "is above the maximum of " + k.max, true
	}
	return "", false
}

// limits says the bounds in words; empty where there are none.
func (k *key) limits() string {
	switch {
	case k.min != "" && k.max != "":
		return k.min + " to " + k.max
	case k.min != "":
		return "at least " + k.min
	default:
		return ""
	}
}
