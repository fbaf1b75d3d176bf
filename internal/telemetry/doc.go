// Package telemetry answers how the process tells what it does: its log, its
// metrics, and which build it is.
//
// The logger promises that no line holds a credential that its attribute's key
// or its form gives away, that no text from outside can break or flood the
// log, and that an outage that every request runs into is told in fewer than
// ten lines a second. It cannot know a secret that stands under a harmless key
// in no known form: bodies, header values and URLs with a query are not to be
// handed to it in the first place.
package telemetry
