package model

import (
	"errors"
	"fmt"
)

// Code classes an error for whoever must act on it.
type Code string

const (
	// CodeUnavailable: the store cannot be reached, is too slow, locked, full
	// or read-only. The same call may succeed later; whether it took effect
	// may be unknown.
	CodeUnavailable Code = "unavailable"
	// CodeRejected: the store refuses this very data, now and later.
	CodeRejected Code = "rejected"
	// CodeNotFound: there is no such thing.
	CodeNotFound Code = "not_found"
	// CodeInvalid: the call itself is wrong.
	CodeInvalid Code = "invalid"
	// CodeUnsafe: the store's settings would lose what was acknowledged.
	CodeUnsafe Code = "unsafe"
	// CodeSchema: the store's schema is missing, older or newer than this binary.
	CodeSchema Code = "schema"
	// CodeBusy: another process holds what only one may hold.
	CodeBusy Code = "busy"
	// CodeInternal: anything else.
	CodeInternal Code = "internal"
)

// Error is what a store returns. Its text names no value that came from a
// message.
type Error struct {
	Code Code
	Op   string // what was being done, "claim"
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first *Error in err's chain, CodeInternal
// where there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
