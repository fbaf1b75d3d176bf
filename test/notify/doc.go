// Package notify answers one question: does a notification that was accepted reach its provider as often as is
// promised, and do people see the truth about it, whatever happens to processes, providers and lines?
//
// Its tests run the real binary, on SQLite in one process and on PostgreSQL and MariaDB in several, against a real SMTP
// server and a real HTTP provider in the test's process, which remember all that they accepted. They kill processes
// between a provider's acceptance and what we write of it, freeze them beyond their lease, and judge by what the
// providers got and what the API, the metrics, the log and the tables say. What they run it with is package running.
//
// POSTHOUSE_SOAK=1 makes the tests long.
package notify
