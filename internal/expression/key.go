package expression

import (
	"encoding/binary"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// MaxKey bounds what Key.Eval returns, in bytes.
const MaxKey = 4 << 10

const keyKinds = 1<<kindBool | 1<<kindNumber | 1<<kindString | 1<<kindArray

// Key is a compiled expression that answers another question: which pushes belong together? It is safe for concurrent use.
//
// A key is a string, a number, a boolean, or a list of these. Two pushes have the same key if and only if the values are of the same type and equal: 1, 1.0
// and 1e0 are one number, "1" is none; strings are compared byte for byte, without regard to what looks alike ("A:e" and "a:É" are two); a list is equal
// to a list with the same parts in the same order, so that ["a", "bc"] and ["ab", "c"] are two, and so are ["a"] and "a".
type Key struct{ program Program }

// CompileKey checks an expression that yields a key, and prepares it. Its errors are like those of Compile.
func CompileKey(source string) (*Key, error) {
	p, err := compile(source, nil)
	switch {
	case err != nil:
		return nil, err
	case p.root.kinds&keyKinds == 0:
		return nil, &CompileError{Line: 1, Column: 1, Message: "the expression yields " + p.root.kinds.String() + "; a key is a string, a number, a boolean, or a list of these"}
	case p.root.fixed != nil:
		return nil, &CompileError{Line: 1, Column: 1, Message: "the expression yields the same key for every push"}
	}
	return &Key{program: Program{root: p.root, usesBody: p.usesBody, slots: p.slots}}, nil
}

// Eval returns the key of a push in a form in which two keys are the same bytes if and only if they are equal. It is never empty and at most MaxKey bytes long.
//
// An error means that this push has no key: beside what stops Program.Eval, that is a value that is null, absent, an object, a string or a list with
// nothing in it (senders fill in "" for what they do not know), a list with a list in it, a text with U+FFFD in it, which is how bytes that are no text are read, and a key that is too long. Its text is like that of Program.Eval's errors.
func (k *Key) Eval(in Input) ([]byte, error) {
	s := k.program.begin(in)
	defer k.program.end(s)
	return s.key(k.program.root)
}

func (s *state) key(root *node) ([]byte, error) {
	if root.parts != nil {
		return s.keyOfParts(root.parts)
	}
	v, err := root.value(s)
	if err != nil {
		return nil, err
	}
	if v.kind == kindArray {
		return s.keyOfList(root, v)
	}
	key, err := s.appendKey(nil, root, v)
	if len(key) == len(emptyString) && key[0] == keyString {
		return nil, evalError(root.called() + " is empty, used as a key")
	}
	return key, err
}

// The bytes that a key's parts begin with. Each part tells its own length, and a list how many there are, so that no two keys are written alike.
const (
	keyFalse  = 'f'
	keyTrue   = 't'
	keyNumber = 'n' // then the length, and the one text that equal numbers share
	keyString = 's' // then the length, and the bytes
	keyList   = 'l' // then how many parts, and these
)

var emptyString = [...]byte{keyString, 0}

// keyOfParts is for a list that the expression spells out: errors can tell which part it is.
func (s *state) keyOfParts(parts []*node) ([]byte, error) {
	if err := s.charge(workElement * len(parts)); err != nil {
		return nil, err
	}
	key := binary.AppendUvarint([]byte{keyList}, uint64(len(parts)))
	for _, part := range parts {
		v, err := part.value(s)
		if err == nil {
			key, err = s.appendKey(key, part, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return key, nil
}

func (s *state) keyOfList(from *node, list value) ([]byte, error) {
	n, err := s.length(list)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, evalError(from.called() + " is an empty array, used as a key")
	}
	part := &node{name: short("an element of "+from.called(), maxName)}
	key := binary.AppendUvarint([]byte{keyList}, uint64(n))
	err = s.each(list, func(_ int, v value) (bool, error) {
		var err error
		key, err = s.appendKey(key, part, v)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// appendKey appends a value that is no list.
func (s *state) appendKey(key []byte, from *node, v value) ([]byte, error) {
	if err := s.charge(workStep); err != nil {
		return nil, err
	}
	switch v.kind {
	case kindBool:
		if len(key) == MaxKey {
			return nil, tooLong(from)
		}
		if v.yes {
			return append(key, keyTrue), nil
		}
		return append(key, keyFalse), nil
	case kindNumber:
		var scratch apd.Decimal
		d, err := s.number(v, &scratch)
		if err == nil {
			err = s.charge(16 * int(d.NumDigits()))
		}
		if err != nil {
			return nil, from.fail(err)
		}
		return appendKeyText(key, keyNumber, from, formatNumber(d))
	case kindString:
		text, err := s.str(v)
		if err == nil {
			err = s.charge(len(text))
		}
		if err != nil {
			return nil, err
		}
		if strings.ContainsRune(text, '\uFFFD') {
			return nil, evalError(from.called() + " has bytes in it that are no text, used in a key")
		}
		return appendKeyText(key, keyString, from, text)
	}
	return nil, from.is(v, "used as a key")
}

func appendKeyText(key []byte, kind byte, from *node, text string) ([]byte, error) {
	const room = 1 + binary.MaxVarintLen16
	if len(key)+room+len(text) > MaxKey {
		return nil, tooLong(from)
	}
	key = binary.AppendUvarint(append(key, kind), uint64(len(text)))
	return append(key, text...), nil
}

func tooLong(from *node) evalError {
	return evalError(from.called() + " makes the key too long")
}
