// Package load answers one question: does work that is in nobody's way stay out of everybody's way? Messages that
// fail again and again, transactions that others leave open in the database, and sources that flood, fail or get stuck
// must not slow down the rest.
//
// Its tests run alone, since they measure. In their short form they assert what does not depend on the machine's
// speed, or bounds that only a fault exceeds, and print the rest; POSTHOUSE_SOAK=1 makes them long, and they assert
// what was promised, on a machine that does nothing else.
package load
